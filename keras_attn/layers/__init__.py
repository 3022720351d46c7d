"""Layers: attention and its score functions, encoders, the attention decoder and its read-outs."""

from keras_attn.layers.additive import BahdanauAttention, ConcatAttention, LayerNormAttention
from keras_attn.layers.attention import Attention, get_attention, register_attention
from keras_attn.layers.bigru_encoder import BiGRUEncoder
from keras_attn.layers.cells import top_state
from keras_attn.layers.context_gate import ContextGateCell
from keras_attn.layers.cosine import CosineAttention
from keras_attn.layers.coverage import CoverageAttention, NeuralCoverageAttention
from keras_attn.layers.coverage_loss import CoverageLoss
from keras_attn.layers.decoder import AttentionDecoder
from keras_attn.layers.decoder_stack import DecoderStack
from keras_attn.layers.deep_cells import DeepTransitionCell, ResidualCells
from keras_attn.layers.dot import DotAttention, GeneralAttention, ScaledDotAttention
from keras_attn.layers.fixed_context import FixedContextDecoder
from keras_attn.layers.forward_algorithm import of_tokens
from keras_attn.layers.hard_alignment import HardAlignment
from keras_attn.layers.initializers import Float32Initializer, half_precision_safe
from keras_attn.layers.layer import check_size, refuse_unknown_arguments
from keras_attn.layers.local import LocalMonotonicAttention, LocalPredictiveAttention
from keras_attn.layers.location import LocationAttention
from keras_attn.layers.location_sensitive import LocationSensitiveAttention
from keras_attn.layers.luong import LuongAttention
from keras_attn.layers.monotonic import BahdanauMonotonicAttention, GeneralMonotonicAttention
from keras_attn.layers.monotonic_alignment import monotonic_alignment, safe_cumprod
from keras_attn.layers.multi_head import MultiHeadAttention, SelfAttention
from keras_attn.layers.normalized_cells import LayerNormGRUCell, LayerNormLSTMCell
from keras_attn.layers.normalizers import at_least_float32, hardmax, sparsemax
from keras_attn.layers.pair_readout import PairReadout
from keras_attn.layers.pointer import PointerGenerator
from keras_attn.layers.projection_part import project, projection_part
from keras_attn.layers.readout import AttentionalLayer, ConcatenatedOutput, DeepOutput, LayerNormOutput
from keras_attn.layers.rnn_encoder import RNNEncoder
from keras_attn.layers.scheduled_sampling import ScheduledSampler, ScheduledSampling, get_scheduled_sampling
from keras_attn.layers.stacked_encoder import StackedEncoder
from keras_attn.layers.steps import unroll_steps
from keras_attn.layers.transformer_decoder import TransformerDecoder, kerashub_layers
from keras_attn.layers.vocabulary import (
    OutputBias,
    vocabulary_embedding,
    vocabulary_projection,
)
from keras_attn.layers.word_dropout import WordDropout
