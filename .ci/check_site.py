"""Checks a built site: nothing is loaded from elsewhere, every link and anchor inside it has a target, ids are unique.

Equations are drawn. The search ranks titles first: what many look for is in the title of a guide.

python .ci/check_site.py build/site
"""

import json
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("source", "srcset")}
LOADED |= {("video", "src"), ("object", "data")}
LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
SEARCHED = ("tsv", "tensorboard", "resume training", "learning rate")
OUTSIDE = re.compile(r"(?:https?:)?//")


class Page(HTMLParser):
    """The addresses that a page loads, its links and its ids."""

    def __init__(self, text: str):
        super().__init__()
        self.loads, self.links, self.ids = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.loads += [values[name] for t, name in LOADED if t == tag and values.get(name)]
        if tag == "link" and LINKS & set((values.get("rel") or "").split()):
            self.loads.append(values["href"])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        self.ids += [values["id"]] if "id" in values else []


site = Path(sys.argv[1]).resolve()
pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
if not pages:
    sys.exit(f"Expected a built site. Received: {site}, without a page")
errors, links = [], 0
for path, page in pages.items():
    name = path.relative_to(site)
    errors += [f"{name} loads {address}" for address in page.loads if OUTSIDE.match(address)]
    errors += [f"{name} has the id {i!r} {page.ids.count(i)} times" for i in set(page.ids) if page.ids.count(i) > 1]
    if name.as_posix() == "404.html":
        continue  # its links begin at the root of the server
    for address in [*page.loads, *page.links]:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        links += 1
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        if not target.exists():
            errors.append(f"{name} links to {address}, which is not there")
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
            errors.append(f"{name} links to {address}, but there is no such anchor")
for path in sorted(site.rglob("*.css")):
    errors += [
        f"{path.relative_to(site)} loads {u}" for u in re.findall(r"url\([\"']?((?:https?:)?//[^)]*)", path.read_text())
    ]
if repository := os.environ.get("GITHUB_REPOSITORY"):
    colab = "https://colab.research.google.com/github/" + repository
    notebooks = [path for path in pages if path.parent.parent == site / "notebooks"]
    without = [path for path in notebooks if not any(link.startswith(colab) for link in pages[path].links)]
    errors += [f"{path.relative_to(site)} has no button for Colab" for path in without]
    errors += [] if notebooks else ["no notebooks"]
if "<math" not in (site / "reference" / "layers" / "scores" / "index.html").read_text("utf-8"):
    errors.append("no equation of the score functions is MathML")
found = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
guides = [page["title"].lower() for page in found if not page["location"].startswith("reference/")]
errors += [
    f"no guide has {q!r} in a title"
    for q in SEARCHED
    if not any(set(q.split()) <= set(re.findall(r"\w+", t)) for t in guides)
]
if errors:
    sys.exit("\n".join(errors))
print(f"{site.name}: {len(pages)} pages, {links} links inside it, nothing from elsewhere")
