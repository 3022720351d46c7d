"""HTML cut into tokens by the rules of the HTML standard, in time linear in its length.

The standard library's `html.parser` is not used: for 60,000 characters of tags that never end it takes more than a
minute, it refuses `<![a>`, and what it finds depends on Python's patch version.
"""

import html
import html.entities
import re
from collections.abc import Iterator
from typing import NamedTuple

# A tag ends at the first ">" outside a quoted value. Nothing is tried twice: the quantifiers are possessive.
_SPACE = r"[\t\n\f\r ]*+"
_ATTRIBUTE = rf"""[\t\n\f\r /]*+(?P<attribute>[^\t\n\f\r />][^\t\n\f\r />=]*+)
(?:{_SPACE}={_SPACE}(?P<value>"[^"]*+"|'[^']*+'|(?!["'])[^\t\n\f\r >]*+)|(?!{_SPACE}=))"""
_START = r"<(?P<close>/?)(?P<name>[a-zA-Z][^\t\n\f\r />]*+)"
_TAG = re.compile(rf"{_START}(?:{_ATTRIBUTE})*+[\t\n\f\r ]*+(?P<slash>[\t\n\f\r /]*+)>", re.VERBOSE)
_ATTRIBUTES = re.compile(_ATTRIBUTE, re.VERBOSE)
_COMMENT_END = re.compile(r"--!?>")
_INCOMPLETE = re.compile(r"<(?:[a-zA-Z/!?]|$)")
_BOGUS_COMMENT = re.compile(r"<(?:[!?]|/[^a-zA-Z])")
_REFERENCE = re.compile(r"&(?:#[0-9]{1,10}(?![0-9])|#[xX][0-9a-fA-F]{1,8}(?![0-9a-fA-F])|[a-zA-Z][a-zA-Z0-9]*);?")

VOID = frozenset(re.findall(r"\w+", "area base br col embed hr img input link meta param source track wbr"))
# Elements with no tags in their content.
RAW_TEXT = frozenset(re.findall(r"\w+", "iframe noembed noframes script style textarea title xmp"))


class Token(NamedTuple):
    """A part of an HTML text: text[start:end]."""

    kind: str  # "text", "open", "close", "void" or, for comments and declarations, "other"
    start: int
    end: int
    name: str = ""  # of a tag, in lower case
    is_fixed: bool = False  # of a tag: whether it says translate="no"


def tokens(text: str) -> Iterator[Token]:
    """Yields the tokens of an HTML text, which together are the text.

    A "<" that begins no tag is text, and so is a tag that does not end, with all that follows it. A comment that does
    not end is one token up to the end of the text. Any element may close itself, as in XML: `<x id="1"/>`.
    """
    position = start = 0  # start: of the open text token
    while (position := text.find("<", position)) >= 0:
        token = _markup(text, position)
        if token is None:
            if _INCOMPLETE.match(text, position):
                break
            position += 1
            continue
        if start < position:
            yield Token("text", start, position)
        yield token
        start = position = token.end
        if token.kind == "open" and token.name in RAW_TEXT:
            closing = re.compile(rf"</{token.name}(?=[\t\n\f\r />])", re.IGNORECASE).search(text, position)
            position = closing.start() if closing else len(text)
    if start < len(text):
        yield Token("text", start, len(text))


def _markup(text: str, start: int) -> Token | None:
    """Returns the token that begins with the "<" at `start`, if one does."""
    if tag := _TAG.match(text, start):
        name = tag["name"].lower()
        closes_itself = name in VOID or (tag["slash"].endswith("/") and name not in RAW_TEXT)
        kind = "close" if tag["close"] else "void" if closes_itself else "open"
        return Token(kind, start, tag.end(), name, _is_fixed(text, tag))
    if text.startswith("<!--", start):
        end = _COMMENT_END.search(text, start + 2)
        return Token("other", start, end.end() if end else len(text))
    end = text.find(">", start) + 1 if _BOGUS_COMMENT.match(text, start) else 0
    return Token("other", start, end) if end else None


def _is_fixed(text: str, tag: re.Match) -> bool:
    attributes = _ATTRIBUTES.finditer(text, tag.end("name"), tag.end() - 1)
    values = (found["value"] for found in attributes if found["attribute"].lower() == "translate")
    return (next(values, None) or "").strip("\"'").lower() == "no"


def characters(text: str) -> Iterator[tuple[str, str]]:
    """Yields each character of a text token, and how it is written in HTML.

    A reference such as "&eacute;" is one character and keeps its spelling. A bare "<" or "&" becomes a reference.
    """
    position = 0
    for reference in _REFERENCE.finditer(text):
        yield from _escaped(text[position : reference.start()])
        position, written = reference.end(), reference[0]
        meant = html.unescape(written) or "\ufffd"  # for a number that no character has
        if len(meant) == 1 and written[-1] == ";":
            yield meant, written
        else:
            yield from _escaped(meant)
    yield from _escaped(text[position:])


def escape(text: str) -> str:
    """Returns a text as HTML in which nothing is markup."""
    return html.escape(text, quote=False)


def _escaped(text: str) -> Iterator[tuple[str, str]]:
    references = {"<": "&lt;", "&": "&amp;"}
    for character in text:
        yield character, references.get(character, character)
