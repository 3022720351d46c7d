"""TensorFlow Serving: a client, and a server for development.

    server.py        serves an exported translator over REST without the stock server's binary, for development
    saved_model.py   the versions in a folder, and the JSON of requests and answers
    client.py        translates through either server, without Keras

Importing this package imports neither Keras nor TensorFlow.
"""
