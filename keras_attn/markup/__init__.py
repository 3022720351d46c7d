"""Markup kept: HTML tags and placeholders carried from a text to its translation, and texts of several sentences.

    html_tokens.py  HTML cut into tags and text
    document.py     a text cut into units, which are translated, and what is left as it is
    unit.py         a unit: its text, and where its tags are
    tree.py         its elements, and the part of the translation that each has
    placement.py    a translation with the tags of its source
    sentences.py    sentences of a unit, by sentencex
    words.py        words by their characters, the same for every tokenizer

It knows no model: `keras_attn.decoding` translates the units and aligns their words. Needs the standard library alone,
and sentencex to split sentences.
"""

from keras_attn.markup.document import PLACEHOLDERS, Document, read_html, read_text
from keras_attn.markup.placement import TargetWord, with_tags
from keras_attn.markup.sentences import check_sentence_splitter, sentences_of
from keras_attn.markup.unit import Unit
from keras_attn.markup.words import words_of
