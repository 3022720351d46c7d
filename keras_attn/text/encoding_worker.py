"""A process of `Encoders`: reads tokenizers, then blocks from its input; writes the ids of each to its output."""

import os
import pickle
import signal
import sys

from keras_attn.text.encoding import encode_block


def main() -> None:
    """Answers until the input ends. A block that is no UTF-8 is answered with its error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is for the process that asks
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what is printed is no answer
    tokenizers = pickle.load(sys.stdin.buffer)
    while True:
        try:
            block = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = encode_block(block, tokenizers)
        except ValueError as error:
            answer = error
        pickle.dump(answer, output, protocol=5)
        output.flush()


if __name__ == "__main__":
    main()
