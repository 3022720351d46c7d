"""What a server says to a request that it does not answer: one of gRPC's codes, and a sentence."""

# The statuses that the stock server gives over HTTP for gRPC's codes; every other code is 500.
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


class Refusal(Exception):
    """`code` is the name of a `grpc.StatusCode`."""

    def __init__(self, code: str, sentence: str):
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence

    @property
    def status(self) -> int:
        """Of HTTP."""
        return HTTP.get(self.code, 500)


class TooLarge(Refusal):
    """A request of more bytes than are taken: gRPC's code for it, and HTTP's own status."""

    status = 413

    def __init__(self, limit: int):
        super().__init__("RESOURCE_EXHAUSTED", f"Expected a request of at most {limit:,} bytes. This one is larger.")
