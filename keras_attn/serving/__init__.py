"""TensorFlow Serving: a translator as a SavedModel that a stock model server loads, text in, text out.

    options.py   what is fixed at export
    text.py      tokenizers as TensorFlow graphs
    limits.py    how long translations may be, from tensors
    chunks.py    a request of any size, in chunks of bounded size
    find.py      the search as a function of a graph
    graph.py     the signatures: repair, tokenize, search and join
    slim.py      equal constants made one
    quantize.py  matrices in fewer bits
    weights.py   the same inside a graph
    gate.py      what a stock server would refuse, or its user regret, refused before publication
    about.py     the record, the batching parameters, models.config and README beside the graph
    warmup.py    what a server runs before it answers anyone
    examples.py  what a version must be found to say before it is published
    publish.py   the next version folder, whole or not at all
    export.py    the command that a process on another backend runs: `python -m keras_attn.serving.export`
    replay.py    the command that runs a version as a client would, in a process with TensorFlow alone

    client.py        translations from a server, over REST or gRPC
    transports.py    one request over each of the two
    server.py        a server for development: its start and its end
    rest.py, rpc.py  what it answers over REST and gRPC
    page.py          its page: a sentence in, its translation and alignment out
    service.py       what the two interfaces share
    batching.py      many requests run as one
    versions.py      the newest version of a folder
    saved_model.py   one version, run as by the stock server
    tensors.py, json_tensors.py  what a signature takes, and its JSON
    refusal.py, metrics.py       what is refused, and what is counted

Importing this package imports no TensorFlow; exporting does, in a process of its own on other backends.
"""

from keras_attn.serving.publish import export_translator

__all__ = ["export_translator"]
