"""The page of a server: enter a sentence, see its translation and alignment."""

import base64
import hashlib
import html
import re
from importlib.resources import files


def page(model_name: str) -> tuple[str, str]:
    """Returns the page for a model, a single HTML file, and its content security policy.

    Alignments look as on the page of `keras_attn.plots.html_page`, whose style and script are inserted.
    The policy lets the page connect to its own server alone, load nothing, and run no other script.
    """
    shown = files("keras_attn.plots").joinpath("word_alignment.html").read_text(encoding="utf-8")
    text = files("keras_attn.serving.dev_server").joinpath("page.html").read_text(encoding="utf-8")
    for name in ("style", "script"):
        text = text.replace(f"/*{name} of word_alignment.html*/", re.search(f"<{name}>(.*?)</{name}>", shown, re.S)[1])
    policy = ["default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'"]
    for name in ("script", "style"):
        digests = [hashlib.sha256(part.encode()).digest() for part in re.findall(f"<{name}>(.*?)</{name}>", text, re.S)]
        policy.append(" ".join([f"{name}-src", *(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests)]))
    return text.replace("<!--model-->", html.escape(model_name)), "; ".join(policy)
