"""Extensions of griffe, which reads the package without importing it.

Headings of docstrings that it does not know are renamed, what a function returns is no code within code, and the names
in a package's table (`keras_attn.lazy.exports`) are found.
"""

import ast
import re

import griffe

HEADINGS = {"Example": "Examples", "Call arguments": "Other Parameters: Call arguments:"}


class Headings(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            for ours, known in HEADINGS.items():
                obj.docstring.value = re.sub(rf"^{ours}:$", known.rstrip(":") + ":", obj.docstring.value, flags=re.M)
            obj.docstring.value = re.sub(r"^(Returns:\n +)`([^`\n]+)`(?=:)", r"\1\2", obj.docstring.value, flags=re.M)


class Exports(griffe.Extension):
    def on_module_members(self, *, node, mod, **_):
        for call in ast.walk(node) if isinstance(node, ast.AST) else ():
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "exports":
                for module, names in ast.literal_eval(call.args[1]).items():
                    for name in names:
                        mod.set_member(name, griffe.Alias(name, f"{mod.path}.{module}.{name}"))
