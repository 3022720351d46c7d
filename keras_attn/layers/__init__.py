"""Layers: attention and its score functions, encoders, the attention decoder and its read-outs."""

from keras_attn.layers.additive import (
    BahdanauAttention,
    ConcatAttention,
    GatedAttention,
    LayerNormAttention,
    LocationSensitiveAttention,
)
from keras_attn.layers.attention import Attention, get_attention, register_attention
from keras_attn.layers.cells import (
    ContextGateCell,
    DeepTransitionCell,
    LayerNormGRUCell,
    LayerNormLSTMCell,
    ResidualCells,
)
from keras_attn.layers.coverage import CoverageAttention, CoverageLoss, DoublyStochasticLoss, NeuralCoverageAttention
from keras_attn.layers.decoder import AttentionDecoder, FixedContextDecoder
from keras_attn.layers.decoder_stack import DecoderStack
from keras_attn.layers.dot import CosineAttention, DotAttention, GeneralAttention, LocationAttention, ScaledDotAttention
from keras_attn.layers.encoders import (
    BiGRUEncoder,
    InputAttentionEncoder,
    PyramidEncoder,
    RNNEncoder,
    StackedEncoder,
)
from keras_attn.layers.hard_alignment import HardAlignment, PairReadout, of_tokens
from keras_attn.layers.layer import (
    Float32Initializer,
    check_size,
    half_precision_safe,
    refuse_unknown_arguments,
    single_array,
)
from keras_attn.layers.luong import LocalMonotonicAttention, LocalPredictiveAttention, LuongAttention
from keras_attn.layers.monotonic import (
    BahdanauMonotonicAttention,
    GeneralMonotonicAttention,
    monotonic_alignment,
    safe_cumprod,
)
from keras_attn.layers.multi_head import MultiHeadAttention, SelfAttention
from keras_attn.layers.normalizers import at_least_float32, hardmax, sparsemax
from keras_attn.layers.pointer import PointerGenerator
from keras_attn.layers.pooling import AttentionPooling
from keras_attn.layers.readout import (
    AttentionalLayer,
    ConcatenatedOutput,
    DeepOutput,
    LayerNormOutput,
    OutputBias,
    project,
    projection_part,
)
from keras_attn.layers.recurrence import top_state
from keras_attn.layers.scheduled_sampling import ScheduledSampler, ScheduledSampling, get_scheduled_sampling
from keras_attn.layers.steps import unroll_steps
from keras_attn.layers.transformer_decoder import TransformerDecoder, kerashub_layers
from keras_attn.layers.word_dropout import WordDropout
