"""`python -m recipes.train RECIPE ...`: the same as `keras-attn train`."""

import sys

from keras_attn.cli.train import main

if __name__ == "__main__":
    sys.exit(main())
