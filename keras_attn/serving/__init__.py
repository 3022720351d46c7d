"""TensorFlow Serving: export of a translator, a client, and a server for development.

    export/        writes a translator as a SavedModel that a stock model server loads, text in, text out
    dev_server/    serves such a model without the stock server's binary, for development
    client.py      translates through either server, over REST or gRPC, without Keras
    transports.py  one request over REST or gRPC

Importing this package imports neither Keras nor TensorFlow.
"""
