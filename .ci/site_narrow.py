"""A hook of mkdocs: pages can be read on a phone.

Code in tables breaks between its words, and a wide figure has a narrow version there, or is scrolled as a table is. A
flag does not break behind its hyphen.
"""

import re
from pathlib import Path
from posixpath import join, normpath, relpath
from urllib.parse import quote, unquote

NARROW = {"guides/attention.svg": "gallery/scores.svg"}  # beside NAME-narrow.svg of NAME.svg
WIDE = 500  # points; figures for a phone have 245

CELL = re.compile(r"<td\b.*?</td>", re.S)
CODE = re.compile(r"(<code>)(.*?)(</code>)", re.S)
# Behind _ . ( = / and between a small letter and a capital.
BREAK = re.compile(r"(?<=[_.(=/])(?=\w)|(?<=[a-z])(?=[A-Z])")
FLAG = re.compile(r"<code>(--[\w-]+)</code>")
FIGURE = re.compile(r'<img alt="[^"]*" src="([^":]*\.svg)" ?/?>')
WIDTH = re.compile(r'<svg [^>]*?width="([\d.]+)pt"', re.S)

figures: dict[str, Path] = {}


def on_files(files, **_):
    figures.clear()
    figures.update({file.src_uri: Path(file.abs_src_path) for file in files if file.src_uri.endswith(".svg")})


def on_post_page(output, page, **_):  # behind the search index, whose parser takes <wbr> for the start of an element
    here = page.url.rstrip("/")

    def break_code(cell):
        return CODE.sub(lambda code: code[1] + BREAK.sub("<wbr>", code[2]) + code[3], cell[0])

    def narrow(image):
        address = normpath(join(here, unquote(image[1])))
        if address not in figures:
            return image[0]
        other = NARROW.get(address, f"{address.removesuffix('.svg')}-narrow.svg")
        if other in figures:
            source = quote(relpath(other, here or "."))
            return f'<picture><source media="(max-width: 45em)" srcset="{source}">{image[0]}</picture>'
        width = WIDTH.search(figures[address].read_text("utf-8"))
        return f'<span class="wide-figure">{image[0]}</span>' if width and float(width[1]) > WIDE else image[0]

    output = FLAG.sub(r'<code class="flag">\1</code>', output)
    return FIGURE.sub(narrow, CELL.sub(break_code, output))
