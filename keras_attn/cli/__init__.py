"""The command line: `keras-attn translate | translate-corpus | evaluate | score | export | serve`."""
