"""The loops that Keras lacks. Only this package and `keras_attn.serving` know which backend is running."""

from keras_attn.backend.loops import loop_product, prefer_fast_matmul, preferred_jit_compile, scan, while_loop

__all__ = ["loop_product", "prefer_fast_matmul", "preferred_jit_compile", "scan", "while_loop"]
