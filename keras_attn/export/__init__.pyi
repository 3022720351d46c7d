from keras_attn.export.array_search import (
    export_search as export_search,
)
from keras_attn.export.onnx import (
    export_onnx as export_onnx,
)
from keras_attn.export.options import (
    ExportOptions as ExportOptions,
)
from keras_attn.export.saved_model import (
    export_translator as export_translator,
)
