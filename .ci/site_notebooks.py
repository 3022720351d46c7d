"""A hook of mkdocs: the notebooks of docs/notebooks/ are pages of the site, with their committed outputs.

They become Markdown, so that links are checked, code has the theme's colours, and nothing is loaded from elsewhere:
the pages of mkdocs-jupyter load MathJax and Mermaid, leave links as they are, and have 600 kB of styles each. A
button opens each in Colab where GITHUB_REPOSITORY is the repository's OWNER/NAME, as in a workflow of GitHub.
"""

import json
import os
import re
from html import escape
from pathlib import Path

from mkdocs.structure.files import File

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
REPOSITORY = os.environ.get("GITHUB_REPOSITORY")
COLAB = "https://colab.research.google.com/"
UPLOAD = f"[Open in Colab]({COLAB}) with *File → Upload notebook*: the first cell then asks for the address of "
UPLOAD += "the repository"


def on_files(files, config):
    for path in sorted(FOLDER.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page(path)))
    return files


def page(path: Path) -> str:
    """Markdown of a notebook: text, code, and what the code shows."""
    parts, heading = [], ""
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            heading = (re.findall(r"^#+ (.*)$", source, flags=re.M) or [heading])[-1]
        else:
            parts.append(f"```python\n{source}\n```")
            parts += [shown(output, heading) for output in cell["outputs"]]
    parts.append(f'<p><a href="../{path.name}" download>Download this notebook</a></p>')
    text = "\n\n".join(parts)
    if REPOSITORY:
        address = f"{COLAB}github/{REPOSITORY}/blob/main/docs/notebooks/{path.name}"
        button = f"[Open in Colab]({address}){{ .md-button }}"
        text = text.replace(
            UPLOAD, f"{button} Its first cell asks for this address, `https://github.com/{REPOSITORY}`,"
        )
    return text


def shown(output: dict, heading: str) -> str:
    """Markdown of an output: text, a picture, or HTML, which is one block however many lines it has."""
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text'])}```"
    data = output["data"]
    if "image/png" in data:
        width = output["metadata"]["image/png"]["width"]
        picture = f"data:image/png;base64,{''.join(data['image/png']).strip()}"
        image = f'<img alt="{escape(heading)}: the picture that the code draws" src="{picture}" width="{width}">'
        return f'<p><span class="wide-figure">{image}</span></p>' if width > 600 else f"<p>{image}</p>"
    return "".join(data["text/html"]).replace("\n", "&#10;")
