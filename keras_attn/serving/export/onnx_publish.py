"""Export to ONNX: a translator as a folder that `keras_attn.runtime` reads, checked before it appears."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from keras_attn import files
from keras_attn.requirements import require
from keras_attn.saving import save_preset
from keras_attn.serving.export import custom_modules
from keras_attn.serving.export.options import ExportOptions
from keras_attn.serving.export.publish import length_limits
from keras_attn.serving.export.python_process import run_python
from keras_attn.serving.export.self_check import check_answers, reference_translations

if TYPE_CHECKING:
    from keras_attn.runtime import OnnxTranslator
    from keras_attn.translation import Translation, Translator

_STAGED = "onnx"


def export_onnx(translator: "Translator", directory: str | os.PathLike) -> Path:
    """Writes `encode.onnx`, `step.onnx`, both tokenizers and `manifest.json` into a new folder.

    `keras_attn.runtime.OnnxTranslator` translates with them, and needs neither Keras nor TensorFlow. The graphs compute
    in float32, whatever precision the model was trained in. They are made by TensorFlow, on every backend in a process
    of its own, which imports the modules that define custom layers. Before the folder appears, the runtime must give
    the translations of `translator.generate` for a few sentences.

    Args:
        translator: A `keras_attn.Translator`, on any backend.
        directory: The new folder.

    Returns:
        The folder.

    Raises:
        FileExistsError: if the folder exists and is not empty, or is a file.
        ImportError: if TensorFlow, tf2onnx or onnxruntime is not installed.
        ValueError: if custom layers are defined in `__main__`, the translator has a shortlist, or the runtime
            translates otherwise than `generate`.
        RuntimeError: if the model cannot be converted.
    """
    require("onnx", "tensorflow", "tf2onnx", "onnxruntime", purpose="export to ONNX")
    from keras_attn.runtime import OnnxTranslator

    if translator.shortlist is not None:
        raise ValueError("Expected a translator without a shortlist for ONNX. Received: one with a shortlist")
    directory = Path(directory).absolute()
    _check_free(directory)
    modules = custom_modules.custom_modules(translator.model)
    options = ExportOptions()
    references = reference_translations(translator, options)
    with files.staging(directory.parent) as folder, tempfile.TemporaryDirectory() as temporary:
        preset = Path(temporary, "preset")
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        save_preset(preset, translator.model, *tokenizers, length_limits(translator))
        request = {"modules": modules, "path": custom_modules.search_path()}
        run_python(["-m", "keras_attn.serving.export", str(preset), str(folder / _STAGED)], request)
        texts = [text for text, _ in references]
        found = _translated(OnnxTranslator(folder / _STAGED), texts, options)
        answers = [(translation.text, translation.score) for translation in found]
        check_answers(references, answers, translator.model.compute_dtype)
        with contextlib.suppress(FileNotFoundError):
            directory.rmdir()  # an empty one, on which Windows moves nothing
        if not files.publish(folder / _STAGED, directory):
            raise FileExistsError(f"Expected a new or empty folder. Received: {str(directory)!r}")
    return directory


def _translated(translator: "OnnxTranslator", texts: list[str], options: ExportOptions) -> list["Translation"]:
    try:
        return translator.generate(texts, **options.generate_arguments())
    except ValueError:
        raise
    except Exception as error:  # onnxruntime's errors have no class in common
        received = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise RuntimeError(
            f"Expected a model that tf2onnx converts to graphs that run. Received: {received}"
        ) from error


def _check_free(directory: Path) -> None:
    if directory.is_file() or (directory.is_dir() and any(directory.iterdir())):
        raise FileExistsError(f"Expected a new or empty folder. Received: {str(directory)!r}")
