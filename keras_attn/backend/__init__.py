"""Operations that Keras lacks: loops, fast products, indexing. Only this package and `serving` name a backend."""

from keras_attn.backend.compilation import preferred_jit_compile
from keras_attn.backend.compiled_files import keep_compiled
from keras_attn.backend.distribution import (
    clipping_replicas,
    compilation_scope,
    data_parallel,
    data_shard,
    replica_count,
    sum_over_replicas,
    training_devices,
)
from keras_attn.backend.float64 import cumsum, exp, keep_float64, matmul, maximum, segment_sum, tanh
from keras_attn.backend.gradients import is_graph_created, without_gradients
from keras_attn.backend.indexing import put, take, take_in_rows
from keras_attn.backend.inference import inference_function
from keras_attn.backend.initialization import copy_weights, set_weights, without_initial_weights
from keras_attn.backend.input_pipeline import disable_pipeline_autotuning
from keras_attn.backend.int8_products import Int8Weights
from keras_attn.backend.job import Job
from keras_attn.backend.loops import scan, while_loop
from keras_attn.backend.precision import has_accelerator, preferred_precision
from keras_attn.backend.products import (
    bfloat16_products,
    dense,
    fast_products,
    kernel_product,
    kernel_products,
    loop_matmul,
    loop_product,
)
from keras_attn.backend.tensorflow_files import read_checkpoint
from keras_attn.backend.variables import (
    build_optimizer,
    keep_values,
    random_state,
    set_random_state,
    sync_variables,
)
