"""Makes the files of the site's playground: models in ONNX, the lexicon, and onnxruntime for browsers.

python .ci/playground.py && mkdocs serve

It needs npm and the extra onnx. The files are in build/playground, from where .ci/site_pages.py takes them; those that
exist are kept. onnxruntime-web is in build/npm, for tests/unit/test_playground.py, too.
"""

import gzip
import json
import lzma
import shutil
import subprocess
import sys
from pathlib import Path

from keras import ops

from keras_attn import Translator
from keras_attn.pronunciation import converted
from keras_attn.saving import LEXICON, locate
from keras_attn.text import Tokenizer

ROOT = Path(__file__).parents[1]
OUT, NPM = ROOT / "build" / "playground", ROOT / "build" / "npm"
PRESETS = {"g2p_en_us": "int8", "phrases_en_fr": "float16"}  # as the presets themselves are stored
RUNTIME = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")


def make_runtime() -> None:
    if (npm := shutil.which("npm")) is None:
        sys.exit("Expected npm, which installs onnxruntime-web. Received: no npm on the PATH")
    NPM.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "docs" / "playground" / "package.json", NPM)
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--omit=peer", "--silent"]
    subprocess.run([npm, "install", *flags], cwd=NPM, check=True)
    OUT.mkdir(parents=True, exist_ok=True)
    for name in RUNTIME:
        shutil.copy(NPM / "node_modules" / "onnxruntime-web" / "dist" / name, OUT)


def make_model(name: str, quantize: str) -> None:
    folder = OUT / name
    if not folder.exists():
        Translator.from_preset(name).export(folder, format="onnx", quantize=quantize)
    if (lexicon := Path(locate(name)) / LEXICON).exists():
        (OUT / f"{name}.dict.gz").write_bytes(gzip.compress(lzma.decompress(lexicon.read_bytes()), mtime=0))
        phones = Tokenizer.load(folder / "target_tokenizer").vocabulary
        ipa = {phone: converted([phone], "arpabet", "ipa")[0] for phone in phones}
        (OUT / f"{name}.ipa.json").write_text(json.dumps(ipa, ensure_ascii=False), "utf-8")


def make_weights(name: str) -> None:
    """Writes the weights in half precision, and their shapes by name, for docs/lecture/rnnsearch.js."""
    weights = {weight.path: ops.convert_to_numpy(weight.value) for weight in Translator.from_preset(name).model.weights}
    shapes = {path: array.shape for path, array in weights.items()}
    (OUT / name / "weights.json").write_text(json.dumps(shapes))
    (OUT / name / "weights.f16").write_bytes(b"".join(array.astype("<f2").tobytes() for array in weights.values()))


make_runtime()
for preset, precision in PRESETS.items():
    make_model(preset, precision)
make_weights("phrases_en_fr")
print(f"{OUT.relative_to(ROOT)}: {sum(path.stat().st_size for path in OUT.rglob('*') if path.is_file()):,} bytes")
