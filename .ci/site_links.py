"""A hook of mkdocs: a public name in code, of this package or of Keras, is a link to its reference."""

import re
from html import escape
from pathlib import Path

KERAS = "https://keras.io/api/"
KERAS_PAGES = {
    "keras.Model": "models/model/",
    "keras.Layer": "layers/base_layer/",
    "keras.Variable": "layers/base_layer/",
    "keras.Sequential": "models/sequential/",
    "keras.callbacks.Callback": "callbacks/base_callback/",
    "keras.distribution": "distribution/",
    "keras.layers.AdditiveAttention": "layers/attention_layers/additive_attention/",
    "keras.layers.Attention": "layers/attention_layers/attention/",
    "keras.layers.GRUCell": "layers/recurrent_layers/gru/",
    "keras.layers.LSTMCell": "layers/recurrent_layers/lstm/",
    "keras.layers.MultiHeadAttention": "layers/attention_layers/multi_head_attention/",
    "keras.layers.RNN": "layers/recurrent_layers/rnn/",
    "keras.layers.StringLookup": "layers/preprocessing_layers/categorical/string_lookup/",
    "keras.layers.TextVectorization": "layers/preprocessing_layers/text/text_vectorization/",
    "keras.losses.Loss": "losses/",
    "keras.metrics.Metric": "metrics/base_metric/",
    "keras.ops": "ops/",
    "keras.saving.load_model": "models/model_saving_apis/model_saving_and_loading/",
    "keras.utils.PyDataset": "utils/python_utils/",
}
CODE = re.compile(r"<(h\d|pre|a|autoref)\b.*?</\1>|<code>([\w.]+)(\(\))?</code>", re.S)
names: dict[str, str] = {}


def on_files(files, **_):
    """Collects the names that the reference has. `keras_attn.layers.Attention` is `Attention`, too, if no other is."""
    names.clear()
    found = []
    for file in files.documentation_pages():
        if file.src_uri.startswith("reference/"):
            found += re.findall(r"^::: (\S+)", Path(file.abs_src_path).read_text("utf-8"), flags=re.M)
    short = [name.rsplit(".", 1)[1] for name in found]
    names.update({name: name for name in found})
    # A name of one lower-case word, such as `sample` or `scan`, may be something else.
    names.update({s: n for s, n in zip(short, found, strict=True) if short.count(s) == 1 and re.search("[A-Z]|_", s)})
    return files


def on_page_content(html, page, **_):
    def link(match):
        name = match[2]
        if match[1] == "autoref":  # a type in a signature
            inner = re.search(r'identifier="([\w.]+)"[^>]*>(.*)</autoref>', match[0], re.S)
            page = inner and KERAS_PAGES.get(inner[1])
            return f'<a href="{KERAS}{page}">{inner[2]}</a>' if page else match[0]
        if name is None:
            return match[0]
        if name in KERAS_PAGES:
            return f'<a href="{KERAS}{KERAS_PAGES[name]}">{match[0]}</a>'
        owner, _, member = name.rpartition(".")
        target = names.get(name) or (names[owner] + f".{member}" if owner in names else None)
        if target is None:
            return match[0]
        return f'<autoref optional identifier="{escape(target)}">{match[0]}</autoref>'

    # The search reads no source code.
    return CODE.sub(link, html).replace(
        '<details class="mkdocstrings-source"', '<details data-search-exclude class="mkdocstrings-source"'
    )
