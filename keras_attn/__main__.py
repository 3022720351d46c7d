"""`python -m keras_attn COMMAND ...` is the same as `keras-attn COMMAND ...`."""

import sys

from keras_attn.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
