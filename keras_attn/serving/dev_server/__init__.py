"""A server for development, with TensorFlow Serving's REST and gRPC interfaces and a page to try a model.

    server.py        starts and stops the server
    rest.py, rpc.py  the REST and the gRPC interface
    page.py          the page: enter a sentence, see its translation and alignment
    service.py       what both interfaces share
    settings.py      addresses and limits
    batching.py      dynamic batching
    memory.py        a bound on the bytes of large requests and answers
    stop.py, interruption.py  stop the run of a model
    versions.py      finds and loads the newest version in a folder
    saved_model.py   one version, run in a TensorFlow session as the stock server does
    tensors.py       signatures, and the check of a request's arrays
    json_tensors.py  the JSON format of requests and answers
    proto_tensors.py gRPC's format of them
    messages.py      protocol buffers that both interfaces send
    errors.py        errors that are sent to the client
    metrics.py       metrics for Prometheus

`keras-attn serve` starts it. It needs TensorFlow and the other packages of the extra "serving".
"""
