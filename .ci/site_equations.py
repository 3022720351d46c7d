"""A hook of mkdocs: the equations of docstrings and pages, plain text in `help()`, are MathML on the site.

    e_ij = v^T tanh(W s_{i-1} + U h_j)        (Bahdanau 2015, appendix A.1.2)

Browsers draw MathML without a script or a font of the site. Two blanks separate equations and notes.
"""

import re
from html import escape, unescape

BLOCK = re.compile(r'<div class="(?:language-text )?highlight"><pre>(?:<span></span>)?<code>([^<]*)</code></pre></div>')
# No equations: programs, commands, and results with a decimal fraction.
PROGRAM = re.compile(r"-> |[a-z]\.[a-z]\w|[#$@%]|[a-z]=[a-z]\w|--\w|\d\.\d\d\b")
EQUATION = re.compile(r"(?!\([^=]*\)$|for |with ).* (=|<-|~|<=?|>=?) ")
WORDS = re.compile("alpha|beta|epsilon|sigma|tau|Phi|exp|log|max|min|sin|cos|tanh|sum|prod")
SYMBOLS = {
    "in": r"\in ",
    "<-": r"\leftarrow ",
    "<=": r"\le ",
    ">=": r"\ge ",
    "...": r"\ldots ",
    "..": r"\ldots ",
    "*": r"\ast ",
}
SYMBOLS |= {"&": r"\cap ", "~": r"\sim ", ".": r"\cdot ", "Σ": r"\sum ", "ε": r"\epsilon ", "'": r"^{\prime}"}
TOKEN = re.compile(
    r"(?P<root>sqrt(?=\())|(?P<arrow>->|<-)?(?P<name>[A-Za-z]{3,}(?:_[a-z]{3,})+|[A-Za-z]+)(?P<mark>[~*])?(?P<prime>'*)"
    r"|(?P<script>[_^])(?P<short>(?:<=?)?-?[A-Za-z\d]+(?:\.\d+)?)?|\d+\.\d+|<-|<=|>=|\.{2,3}|."
)


def group(text: str, start: int) -> int:
    """The end of the group that begins with the bracket at `start`."""
    depth = 0
    for end in range(start, len(text)):
        depth += (text[end] in "({") - (text[end] in ")}")
        if not depth:
            return end
    raise ValueError(f"Expected balanced brackets. Received: {text}")


def tex(text: str, in_script: bool = False) -> str:
    r"""TeX of an equation: `alpha_ij = exp(e_ij)` is `\alpha_{ij} = \exp(e_{ij})`."""
    found, place = [], 0
    while place < len(text):
        token = TOKEN.match(text, place)
        begin, place, name = place, token.end(), token["name"]
        if token["root"] or (token["script"] and not token["short"]):
            end = group(text, place)
            inner = tex(text[place + 1 : end], not token["root"])
            found.append(rf"\sqrt{{{inner}}}" if token["root"] else f"{token[0]}{{{inner}}}")
            place = end + 1
        elif token["script"]:
            inner = r"\top" if token[0] == "^T" else tex(token["short"], True)
            found.append(f"{token['script']}{{{inner}}}")
        elif name:
            if WORDS.fullmatch(name) or name == "in":
                name = SYMBOLS.get(name, rf"\{name} ")
            elif len(name) > 2 or (len(name) == 2 and (name.isupper() or not in_script)):
                before = " " * bool(re.match(r"[\w}),] ", text[max(begin - 2, 0) : begin]))
                after = " " * bool(re.match(r" (?![A-Za-z]{2})[\w(]", text[place:]))
                name = rf"\text{{{before}{name}{after}}}"
            name = rf"\over{'right' if token['arrow'] == '->' else 'left'}arrow{{{name}}}" if token["arrow"] else name
            name = rf"\tilde{{{name}}}" if token["mark"] == "~" else name
            mark = r"\prime" * len(token["prime"]) or r"\ast" * (token["mark"] == "*")
            found.append(f"{name}^{{{mark}}}" if mark else name)
        else:
            found.append(SYMBOLS.get(token[0], token[0]))
    return "".join(found)


def piece(text: str) -> str:
    """HTML of an equation or a note."""
    from latex2mathml.converter import convert

    if EQUATION.match(text):
        return convert(tex(text)).replace('display="inline"', 'displaystyle="true"')
    note = re.sub("`(.*?)`", r"<code>\1</code>", escape(text, quote=False))
    return f"<span>{note}</span>"


def on_page_content(html, **_):
    def equations(block):
        lines = [re.split(r"\s{2,}", line.strip()) for line in unescape(block[1]).splitlines() if line.strip()]
        if PROGRAM.search(unescape(block[1])) or not any(EQUATION.match(text) for line in lines for text in line):
            return block[0]
        rows = ("".join(map(piece, line)) for line in lines)
        return f'<div class="equations" data-search-exclude>{"".join(f"<p>{row}</p>" for row in rows)}</div>'

    return BLOCK.sub(equations, html)
