"""TensorFlow Serving: a client, and a server for development.

    server.py        serves an exported translator over REST without the stock server's binary, for development
    saved_model.py   the versions in a folder, and the JSON of requests and answers
    client.py        translates through either server, without Keras
    n_best.py        translations from the rows of `translate_n_best`
    saved_translator.py  translates with a version in this process, for commands

Importing this package imports neither Keras nor TensorFlow.
"""
