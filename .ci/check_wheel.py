"""Checks that a wheel installs the package keras_attn with its data files, recipes and commands, and nothing else.

python .ci/check_wheel.py dist/keras_attn-0.1.0-py3-none-any.whl
"""

import sys
import zipfile
from pathlib import Path

wheel = Path(sys.argv[1])
with zipfile.ZipFile(wheel) as archive:
    names = set(archive.namelist())
    commands = next((archive.read(name).decode() for name in names if name.endswith("entry_points.txt")), "")

foreign = {name for name in names if not name.startswith("keras_attn/") and ".dist-info/" not in name}
if foreign:
    sys.exit(f"Expected a wheel with keras_attn alone. Received: {sorted(foreign)}")
source = {
    path.as_posix() for path in Path("keras_attn").rglob("*") if path.is_file() and "__pycache__" not in path.parts
}
source |= {f"keras_attn/recipes/{name}" for name in ("__init__.py", "named_corpora.py", "named_corpora.sha256")}
for folder in ("g2p_en_us", "phrases_en_fr"):
    files = [path for path in Path("saved_models/presets", folder).rglob("*") if path.is_file()]
    source |= {path.as_posix().replace("saved_models/presets", "keras_attn/saving/shipped") for path in files}
source |= {f"keras_attn/{path}" for path in Path("recipes").glob("*.py") if "\nCONFIGS = " in path.read_text("utf-8")}
packed = {name for name in names if name.startswith("keras_attn/")}
if source != packed:
    missing, surplus = sorted(source - packed), sorted(packed - source)
    sys.exit(f"Expected every file of keras_attn, and the recipes. Missing: {missing}; too many: {surplus}")
if "keras-attn = " not in commands:
    sys.exit(f"Expected the console script keras-attn. Received: {commands!r}")
print(f"{wheel.name}: {len(packed)} files, {wheel.stat().st_size / 1024:.0f} KB")
