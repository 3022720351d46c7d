"""`python -m recipes.evaluate RUN ...`: the same as `keras-attn evaluate`."""

import sys

from keras_attn.cli.evaluate import main

if __name__ == "__main__":
    sys.exit(main())
