from keras_attn.translation.batching import (
    padded as padded,
    token_ids_of as token_ids_of,
)
from keras_attn.translation.quantization import (
    quantize as quantize,
)
from keras_attn.translation.results import (
    Translation as Translation,
    vote as vote,
)
from keras_attn.translation.shortlist import (
    Shortlist as Shortlist,
    with_shortlist as with_shortlist,
)
from keras_attn.translation.text_search import (
    TextSearch as TextSearch,
)
from keras_attn.translation.translator import (
    Translator as Translator,
    compile_model as compile_model,
)
