"""Random HTML for hypothesis, and an independent reader of it: the standard library's parser."""

import html.parser
import itertools

from hypothesis import strategies as st

INLINE = ("a", "b", "em", "g", "span")
_WORDS = ("two", "l'or", "é", "3", "&amp;", "caf&eacute;", "&#233;t&#xE9;", "你好", ".", ",", "x>y", "{n}")
_BARE = ("<", "a&b")  # which are written otherwise
_BLANKS = (" ", "  ", "\n  ", "&nbsp;", "\t")
_POINTS = ('<img src="1.png"/>', '<x n="1"/>', "<!-- a < b -->", "<code>x <b>y</b></code>", "<wbr>")
_ATTRIBUTES = ("", ' href="a?b=1&c"', " title='>'", ' class="x"  lang=en')


def _element(content):
    return st.builds(
        lambda name, attributes, inner: f"<{name}{attributes}>{inner}</{name}>",
        st.sampled_from(INLINE),
        st.sampled_from(_ATTRIBUTES),
        content,
    )


def _run(*parts):
    return st.lists(st.one_of(*parts), max_size=6).map("".join)


_words, _blanks, _points = map(st.sampled_from, (_WORDS, _BLANKS, _POINTS))
TEXTS = st.recursive(_run(_words, _blanks, _points), lambda inner: _run(_words, _blanks, _element(inner)))
_loose = st.sampled_from((*_WORDS, *_BARE, *_POINTS, "<b>", "</b>", "</i>"))
ANY = st.recursive(_run(_loose, _blanks), lambda inner: _run(_loose, _blanks, _element(inner)))
_OTHER = (
    "<hr>",
    "<script>a < b && '<p>'</script>",
    "<pre> x\n <b>y</b></pre>",
    "<style>b>i{}</style>",
    "<!DOCTYPE html>",
)
_blocks = st.builds("<p class=x>{}</p>".format, TEXTS), st.builds("<ul><li>{}".format, TEXTS)
PAGES = st.lists(st.one_of(TEXTS, st.sampled_from(_OTHER), *_blocks), max_size=5).map("".join)
SOUP = st.text(alphabet="<>/ab ='\"!-&;#x1{}\n?[", max_size=60)


class Reader(html.parser.HTMLParser):
    """The tags and comments of an HTML text, and, where elements have an id, the id of the element around each."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.parents, self.texts, self._stack, self.is_nested = [], {}, [], [None], True
        self.feed(text)
        self.close()
        self.is_nested = self.is_nested and self._stack == [None]

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in ("img", "wbr", "hr"):
            self._stack.append((tag, dict(attributes).get("id")))

    def handle_startendtag(self, tag, attributes):
        self.tags.append(self.get_starttag_text())
        if name := dict(attributes).get("id"):
            self.parents[name] = self._stack[-1] and self._stack[-1][1]

    def handle_endtag(self, tag):
        self.tags.append(f"</{tag}>")
        if self._stack[-1] and self._stack[-1][0] == tag:
            self._stack.pop()
        else:
            self.is_nested = False

    def handle_comment(self, data):
        self.tags.append(f"<!--{data}-->")

    def handle_data(self, data):
        self.texts.append(data)


def numbered(text: str) -> str:
    """The text with an id for each tag of an inline element."""
    numbers = itertools.count()
    for name in INLINE:
        first, *rest = text.split(f"<{name}")
        text = first + "".join(
            f'<{name} id="{next(numbers)}"{one}' if one[0] in " >" else f"<{name}{one}" for one in rest
        )
    return text
