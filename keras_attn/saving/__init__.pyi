from keras_attn.saving.card import (
    CARD as CARD,
    model_card as model_card,
    task_of as task_of,
)
from keras_attn.saving.preset import (
    load_preset as load_preset,
    load_presets as load_presets,
    save_preset as save_preset,
)
from keras_attn.saving.quantization import (
    QuantizedMatrix as QuantizedMatrix,
    is_quantized as is_quantized,
    quantize_matrix as quantize_matrix,
    rounded_model as rounded_model,
)
from keras_attn.saving.registry import (
    LEXICON as LEXICON,
    PREFIX as PREFIX,
    PresetEntry as PresetEntry,
    add_preset as add_preset,
    is_here as is_here,
    locate as locate,
    presets as presets,
    upload as upload,
)
