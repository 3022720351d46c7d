"""An extension of griffe: the headings of the package's docstrings that it does not know become those that it does."""

import re

import griffe

HEADINGS = {"Example": "Examples", "Call arguments": "Other Parameters: Call arguments:"}


class Headings(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            for ours, known in HEADINGS.items():
                obj.docstring.value = re.sub(rf"^{ours}:$", known.rstrip(":") + ":", obj.docstring.value, flags=re.M)
