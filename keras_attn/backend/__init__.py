"""What Keras lacks of a backend: loops and fast products. Only this package and `keras_attn.serving` name a backend."""

from keras_attn.backend.compilation import preferred_jit_compile
from keras_attn.backend.distribution import (
    clipping_replicas,
    compilation_scope,
    data_parallel,
    local_devices,
    model_parallel,
    parts_of_axis,
)
from keras_attn.backend.inference import inference_function
from keras_attn.backend.input_pipeline import disable_pipeline_autotuning
from keras_attn.backend.loops import scan, while_loop
from keras_attn.backend.matmul import loop_product, prefer_fast_matmul
from keras_attn.backend.precision import preferred_precision
from keras_attn.backend.replicas import data_shard, replica_count, sum_over_replicas
from keras_attn.backend.variables import keep_values

__all__ = [
    "clipping_replicas",
    "compilation_scope",
    "data_parallel",
    "data_shard",
    "disable_pipeline_autotuning",
    "inference_function",
    "keep_values",
    "local_devices",
    "loop_product",
    "model_parallel",
    "parts_of_axis",
    "prefer_fast_matmul",
    "preferred_jit_compile",
    "preferred_precision",
    "replica_count",
    "scan",
    "sum_over_replicas",
    "while_loop",
]
