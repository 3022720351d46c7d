"""An extension of griffe, which reads the package without importing it.

Headings of docstrings that it does not know are renamed, and what a function returns is no code within code.
"""

import re

import griffe

HEADINGS = {"Example": "Examples", "Call arguments": "Other Parameters: Call arguments:"}


class Headings(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            for ours, known in HEADINGS.items():
                obj.docstring.value = re.sub(rf"^{ours}:$", known.rstrip(":") + ":", obj.docstring.value, flags=re.M)
            # Names of several arguments stand on one line.
            obj.docstring.value = re.sub(
                r"^(    \w+(?:, \w+)*,)\n +(?=(?:\w+, )*\w+:)", r"\1 ", obj.docstring.value, flags=re.M
            )
            obj.docstring.value = re.sub(r"^(Returns:\n +)`([^`\n]+)`(?=:)", r"\1\2", obj.docstring.value, flags=re.M)
