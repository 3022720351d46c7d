"""Operations that Keras lacks: loops, products in a loop, indexing. Only this package and `serving` name a backend."""

from keras_attn.backend.distribution import (
    Job,
    clipping_replicas,
    compilation_scope,
    data_parallel,
    data_shard,
    replica_count,
    sum_over_replicas,
    training_devices,
)
from keras_attn.backend.inference import compiles_each_length, inference_function
from keras_attn.backend.int8_products import Int8Weights, kernel_product, kernel_products
from keras_attn.backend.loops import scan, while_loop
from keras_attn.backend.operations import (
    cumsum,
    is_graph_created,
    keep_float64,
    matmul,
    maximum,
    put,
    segment_sum,
    take,
    take_in_rows,
    tanh,
    without_gradients,
)
from keras_attn.backend.products import (
    bfloat16_products,
    dense,
    loop_matmul,
    loop_product,
    training_products,
)
from keras_attn.backend.settings import (
    has_accelerator,
    has_bfloat16_products,
    keep_compiled,
    preferred_jit_compile,
    preferred_precision,
    tune_process,
)
from keras_attn.backend.tensorflow_files import read_checkpoint
from keras_attn.backend.variables import (
    all_layers,
    build_optimizer,
    copy_weights,
    dense_gradients,
    keep_values,
    random_state,
    set_random_state,
    set_weights,
    sync_variables,
    without_initial_weights,
)
