"""Training: settings, corpora, runs and their reports.

What a recipe needs, and what reads a run, is here and light to import. `corpora`, `plan` and `run` have the rest.
"""

from keras_attn.training.config import (
    BIBLE,
    DROPOUT,
    G2P,
    MULTI30K,
    PHRASES,
    RecurrentConfig,
    TrainingConfig,
    builder,
    check_range,
    config_for,
    model_arguments,
    multi30k,
    override,
)
from keras_attn.training.recipes import load_recipe
from keras_attn.training.report import export_arguments, length_penalty, read_report, surroundings
from keras_attn.training.termination import Terminated
