"""Errors that a server sends to its client: one of gRPC's codes, and a sentence."""

# The HTTP statuses of the stock server for gRPC's codes; every other code is 500.
HTTP = {
    "CANCELLED": 499,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class RequestError(Exception):
    """A request that the server refuses or cannot answer.

    Args:
        code: The name of a `grpc.StatusCode`.
        sentence: The error message for the client.
    """

    def __init__(self, code: str, sentence: str):
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence

    @property
    def status(self) -> int:
        """The HTTP status."""
        return HTTP.get(self.code, 500)


class RequestTooLarge(RequestError):
    """A request of too many bytes: RESOURCE_EXHAUSTED over gRPC, 413 over HTTP."""

    status = 413

    def __init__(self, limit: int):
        super().__init__("RESOURCE_EXHAUSTED", f"Expected a request of at most {limit:,} bytes. This one is larger.")
