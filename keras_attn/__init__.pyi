from keras_attn import losses as losses, metrics as metrics, models as models, search as search
from keras_attn.backend import (
    scan as scan,
    while_loop as while_loop,
)
from keras_attn.data import (
    ParallelDataset as ParallelDataset,
    teacher_forcing as teacher_forcing,
)
from keras_attn.layers import (
    AttentionalLayer as AttentionalLayer,
    AttentionDecoder as AttentionDecoder,
    AttentionPooling as AttentionPooling,
    BahdanauAttention as BahdanauAttention,
    BahdanauMonotonicAttention as BahdanauMonotonicAttention,
    BiGRUEncoder as BiGRUEncoder,
    ConcatAttention as ConcatAttention,
    ContextGateCell as ContextGateCell,
    CosineAttention as CosineAttention,
    CoverageAttention as CoverageAttention,
    CoverageLoss as CoverageLoss,
    DecoderStack as DecoderStack,
    DeepOutput as DeepOutput,
    DeepTransitionCell as DeepTransitionCell,
    DotAttention as DotAttention,
    DoublyStochasticLoss as DoublyStochasticLoss,
    FixedContextDecoder as FixedContextDecoder,
    GatedAttention as GatedAttention,
    GeneralAttention as GeneralAttention,
    GeneralMonotonicAttention as GeneralMonotonicAttention,
    InputAttentionEncoder as InputAttentionEncoder,
    LayerNormGRUCell as LayerNormGRUCell,
    LayerNormLSTMCell as LayerNormLSTMCell,
    LocalMonotonicAttention as LocalMonotonicAttention,
    LocalPredictiveAttention as LocalPredictiveAttention,
    LocationAttention as LocationAttention,
    LocationSensitiveAttention as LocationSensitiveAttention,
    LuongAttention as LuongAttention,
    MultiHeadAttention as MultiHeadAttention,
    NeuralCoverageAttention as NeuralCoverageAttention,
    PointerGenerator as PointerGenerator,
    PyramidEncoder as PyramidEncoder,
    ResidualCells as ResidualCells,
    RNNEncoder as RNNEncoder,
    ScaledDotAttention as ScaledDotAttention,
    ScheduledSampler as ScheduledSampler,
    ScheduledSampling as ScheduledSampling,
    SelfAttention as SelfAttention,
    WordDropout as WordDropout,
    register_attention as register_attention,
    unroll_steps as unroll_steps,
)
from keras_attn.models import (
    check_ids as check_ids,
)
from keras_attn.pronunciation import (
    G2P as G2P,
)
from keras_attn.saving import (
    presets as presets,
)
from keras_attn.text import (
    SpecialIds as SpecialIds,
    Tokenizer as Tokenizer,
)
from keras_attn.translation import (
    Shortlist as Shortlist,
    Translation as Translation,
    Translator as Translator,
    quantize as quantize,
    with_shortlist as with_shortlist,
)

__version__: str
