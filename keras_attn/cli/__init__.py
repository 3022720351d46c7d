"""The command line: `keras-attn translate | evaluate | score | export | serve`."""
