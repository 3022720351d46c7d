"""Runs the notebooks of docs/notebooks/ and keeps their outputs, without times, warnings and the log of libraries.

    pip install -e ".[docs,tensorflow,torch,recipes]"
    python .ci/run_notebooks.py [docs/notebooks/scores.ipynb ...]

Each runs from its first cell in a process of its own, on torch unless KERAS_BACKEND says another backend, in an empty
folder. A cell that fails stops everything, and its notebook is left as it was.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]


def strip(notebook) -> None:
    """Removes what differs from one run or machine to the next, and is no result: stderr, and the kernel's version."""
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            outputs, cell.outputs = cell.outputs, []
            for output in outputs:
                if output.get("name") == "stdout" and cell.outputs and cell.outputs[-1].get("name") == "stdout":
                    cell.outputs[-1].text += output.text  # a kernel sends it in as many parts as it likes
                elif output.get("name") != "stderr":
                    cell.outputs.append(output)


os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
for path in map(Path, sys.argv[1:] or sorted(ROOT.glob("docs/notebooks/*.ipynb"))):
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, kernel_name="python3", record_timing=False, resources=resources).execute()
    strip(notebook)
    nbformat.write(notebook, path)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
