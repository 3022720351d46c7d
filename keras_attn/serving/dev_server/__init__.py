"""A server for development, with TensorFlow Serving's REST and gRPC interfaces and a page."""
