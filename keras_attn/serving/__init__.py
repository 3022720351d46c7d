"""TensorFlow Serving: export of a translator, a client, and a server for development.

    export/          writes a translator as a SavedModel that a stock model server loads, text in, text out
    server.py        serves such a model over REST without the stock server's binary, for development
    saved_model.py   the versions in a folder
    json_tensors.py  the JSON of requests and answers
    client.py        translates through either server, without Keras

Importing this package imports neither Keras nor TensorFlow.
"""
