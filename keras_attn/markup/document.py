"""A text with markup, placeholders or several sentences, cut into what is translated and what is not."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from keras_attn.markup.html_tokens import RAW_TEXT, Token, characters, escape, tokens
from keras_attn.markup.unit import Unit, UnitBuilder

# Elements that separate texts; every other one is in a text.
BLOCKS = frozenset(
    re.findall(
        r"\w+",
        """address article aside audio base blockquote body br button canvas caption center col colgroup dd details
        dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup
        hr html iframe legend li link main menu meta nav noembed noframes noscript object ol optgroup option p param pre
        script search section select source style summary table tbody td template textarea tfoot th thead title tr track
        ul video xmp""",
    )
)
# Elements whose content is not translated.
LEFT_ALONE = (RAW_TEXT - {"title"}) | {"code", "kbd", "math", "pre", "samp", "svg", "template", "var"}
# Elements whose end tag may be left out, and those whose start tag ends them (the HTML standard, section 13.1.2.4).
_CELLS, _SECTIONS = frozenset(("td", "th")), frozenset(("tbody", "tfoot"))
_PARAGRAPH_ENDS = frozenset(
    re.findall(
        r"\w+",
        """address article aside blockquote details dialog div dl fieldset figcaption figure footer form h1 h2 h3 h4 h5
        h6 header hgroup hr main menu nav ol p pre search section table ul""",
    )
)
ENDED_BY = {
    "li": frozenset(("li",)),
    **dict.fromkeys(("dt", "dd"), frozenset(("dt", "dd"))),
    "p": _PARAGRAPH_ENDS,
    "option": frozenset(("option", "optgroup", "hr")),
    "optgroup": frozenset(("optgroup", "hr")),
    **dict.fromkeys(_CELLS, _CELLS | _SECTIONS | {"tr"}),
    "tr": _SECTIONS | {"tr"},
    **dict.fromkeys(("thead", *_SECTIONS), _SECTIONS),
}
PLACEHOLDERS = r"\{\{[^{}]*\}\}|\$?\{[^{}\s]*\}|%(?:\(\w+\)|\d+\$)?[-+#0]*+\d*+(?:\.\d+)?[sdiufgeExXc@](?![a-zA-Z])"
_PARAGRAPH_END = re.compile(r"\n(?:[^\S\n]*+\n)++")


class Document(NamedTuple):
    """A text cut into units, which are translated, and what is left as it is, as `read_html` and `read_text` return it.

    With each unit in its place again, the parts are the text.

    Example:
        >>> document = keras_attn.markup.read_html("<p>two <b>dogs</b></p>")
        >>> [part if isinstance(part, str) else part.text for part in document.parts]
        ['', '<p>', 'two dogs', '</p>', '']
    """

    parts: list[str | Unit]  # in the order of the text
    escape: Callable[[str], str]  # returns a word of a translation as this kind of text writes it

    @property
    def units(self) -> list[Unit]:
        """The parts that are translated."""
        return [part for part in self.parts if isinstance(part, Unit)]


def read_html(text: str, placeholders: re.Pattern | None = None) -> Document:
    """Reads an HTML text, or a part of one, by the rules of the HTML standard: any text can be read.

    Block elements, such as `p` and `li`, separate units. Scripts, styles, `code`, `pre` and their like, and elements
    with `translate="no"`, are left as they are: as parts of their own, or as tags of the unit that they stand in.

    Args:
        text: The text. A tag that does not end is text, with all that follows it.
        placeholders: Finds parts of its texts that stay as they are, such as `re.compile(PLACEHOLDERS)`. They are
            tags of their unit. None: there are none.

    Returns:
        A `Document`. Text without a letter or digit is no unit.

    Example:
        >>> (unit,) = keras_attn.markup.read_html("<p>The <b>black</b> dog &amp; I</p>").units
        >>> unit.text
        'The black dog & I'
        >>> [tag.written for tag in unit.tags]
        ['<b>', '</b>']
    """
    found = list(tokens(text))
    partners = _partners(found)
    parts, builder, start, number = [], UnitBuilder(), 0, 0  # start: where the builder's text begins

    def finish(end: int) -> None:
        nonlocal builder
        parts.append(builder.build() if builder.has_words else text[start:end])
        builder = UnitBuilder()

    while number < len(found):
        token = found[number]
        is_block = token.name in BLOCKS
        last = _end_of_fixed(found, partners, number)
        end = found[last].end
        if is_block:
            finish(token.start)
            parts.append(text[token.start : end])
            start = end
        elif token.kind == "text":
            _add(builder, text[token.start : end], characters, placeholders)
        elif last > number:
            builder.add_tag(text[token.start : end])
        else:
            builder.add_tag(text[token.start : end], number, partners[number])
        number = last + 1
    finish(len(text))
    return Document(parts, escape)


def read_text(text: str, placeholders: re.Pattern | None = None) -> Document:
    """Reads a text without markup: a unit for each paragraph, which a blank line ends.

    Args:
        text: The text.
        placeholders: As in `read_html`.

    Returns:
        A `Document`. A paragraph without a letter or digit is no unit.

    Example:
        >>> import re
        >>> pattern = re.compile(keras_attn.markup.PLACEHOLDERS)
        >>> document = keras_attn.markup.read_text("Hello {name}!\\n\\nTwo  dogs.", pattern)
        >>> [(unit.text, [tag.written for tag in unit.tags]) for unit in document.units]
        [('Hello !', ['{name}']), ('Two dogs.', [])]
    """
    parts, start = [], 0
    for end in [*_PARAGRAPH_END.finditer(text), None]:
        builder, paragraph = UnitBuilder(), text[start : end.start() if end else len(text)]
        _add(builder, paragraph, _plain, placeholders)
        parts += [builder.build() if builder.has_words else paragraph, end[0] if end else ""]
        start = end.end() if end else start
    return Document(parts, str)


def _add(builder: UnitBuilder, text: str, written: Callable, placeholders: re.Pattern | None) -> None:
    start = 0
    for found in placeholders.finditer(text) if placeholders else ():
        if found[0]:
            builder.add_text(written(text[start : found.start()]))
            builder.add_tag("".join(way for _, way in written(found[0])))
            start = found.end()
    builder.add_text(written(text[start:]))


def _plain(text: str) -> Iterator[tuple[str, str]]:
    return zip(text, text, strict=True)


def _partners(found: list[Token]) -> list[int]:
    """Returns for each tag the number of the tag at the other end of its element; its own if there is none."""
    partners, stack, open_names = list(range(len(found))), [], {}
    for number, token in enumerate(found):
        if token.kind == "open":
            stack.append(number)
            open_names[token.name] = open_names.get(token.name, 0) + 1
        elif token.kind == "close" and open_names.get(token.name):
            while True:
                opening = stack.pop()
                open_names[found[opening].name] -= 1
                if found[opening].name == token.name:
                    break
            partners[opening], partners[number] = number, opening
    return partners


def _end_of_fixed(found: list[Token], partners: list[int], number: int) -> int:
    """Returns the number of the last token of an element that is left alone; `number` if none begins there."""
    token = found[number]
    if token.kind != "open" or not (token.name in LEFT_ALONE or token.is_fixed):
        return number
    if partners[number] != number:
        return partners[number]
    if token.name in RAW_TEXT:
        return len(found) - 1
    return _implied_end(found, partners, number) if token.name in ENDED_BY else number


def _implied_end(found: list[Token], partners: list[int], number: int) -> int:
    """Returns the number of the last token of an element whose end tag is left out."""
    n = number + 1
    while n < len(found):
        opens, closes = found[n].kind in ("open", "void"), found[n].kind == "close"
        if (opens and found[n].name in ENDED_BY[found[number].name]) or (closes and partners[n] < number):
            return n - 1
        n = max(n, partners[n]) + 1
    return len(found) - 1
