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
LONGEST = 1000  # bytes of a sentence, which may quote what a client sent; gRPC sends it in its headers, some as %41


class RequestError(Exception):
    """A request that the server refuses or cannot answer.

    Args:
        code: The name of a `grpc.StatusCode`.
        sentence: The error message for the client; its end is omitted if it is long.
        status: The HTTP status; None: the stock server's for the code.
    """

    def __init__(self, code: str, sentence: str, status: int | None = None):
        coded = sentence.encode(errors="replace")  # JSON may have halves of surrogate pairs
        end = " ..." if len(coded) > LONGEST else ""
        self.code = code
        self.sentence = coded[:LONGEST].decode(errors="ignore") + end
        self.status = status or HTTP.get(code, 500)
        super().__init__(self.sentence)


def invalid(sentence: str) -> RequestError:
    return RequestError("INVALID_ARGUMENT", sentence)


def too_large(sentence: str) -> RequestError:
    """Returns an error that no later attempt avoids: RESOURCE_EXHAUSTED over gRPC, 413 over HTTP.

    Its sentence says "larger", by which clients tell it from an overloaded server.
    """
    return RequestError("RESOURCE_EXHAUSTED", sentence, status=413)


def large_answer(limit: int, verb: str) -> RequestError:
    """Returns `too_large` for an answer that "is" or "may be" larger than the limit."""
    return too_large(
        f"Expected a request whose answer has at most {limit:,} bytes. This one's {verb} larger. "
        "Send fewer or shorter texts at once."
    )


def too_slow(sentence: str) -> RequestError:
    """Returns an error for a client that sends too slowly: DEADLINE_EXCEEDED over gRPC, 408 over HTTP."""
    return RequestError("DEADLINE_EXCEEDED", sentence, status=408)
