"""A hook of mkdocs: pages that stand elsewhere in the repository are pages of the site, too, and links to them hold."""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "recipes/README.md": "results.md",
    "saved_models/README.md": "serving.md",
}
UNSEARCHED = ("changelog.md", "performance.md", "results.md")  # the search leaves out measurements and changes
REPORTS = ("recipes/reports/", "reports/")
PLAYGROUND = ROOT / "build" / "playground"  # of .ci/playground.py
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")


def on_files(files, config):
    elsewhere = {ROOT / path: uri for path, uri in PAGES.items()}
    reports = ROOT / REPORTS[0]
    elsewhere |= {
        path: REPORTS[1] + path.relative_to(reports).as_posix() for path in sorted(reports.rglob("*")) if path.is_file()
    }
    made = (path for path in sorted(PLAYGROUND.rglob("*")) if path.is_file())
    elsewhere |= {path: f"playground/{path.relative_to(PLAYGROUND).as_posix()}" for path in made}
    for path, uri in elsewhere.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, **_):
    """Links between files of the repository become links between pages of the site."""
    uri = page.file.src_uri
    page.meta["search"] = {"exclude": uri in UNSEARCHED, "boost": 1 if uri.startswith("reference/") else 2}
    path = next((path for path, other in PAGES.items() if other == uri), f"docs/{uri}")

    def on_site(match):
        target = normpath(join(dirname(path), match[2]))
        if target.startswith("docs/notebooks/"):
            target = target.replace(".ipynb", ".md")  # the page that .ci/site_notebooks.py makes of it
        target = PAGES.get(target, target.replace(*REPORTS) if target.startswith(REPORTS[0]) else target)
        return match[1] + relpath(target.removeprefix("docs/"), dirname(uri) or ".") + match[3]

    return LINK.sub(on_site, markdown)
