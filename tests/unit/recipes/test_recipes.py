"""The recipes: sizes that can be compared, and the attention that a setting chooses."""

from functools import partial

import pytest

from keras_attn.backend import without_initial_weights
from keras_attn.training import override
from keras_attn.training.plan import load_recipe

RECIPES = ["rnnsearch", "rnnencdec", "lstm_seq2seq", "luong", "nematus", "gnmt", "rnmt_plus", "transformer"]


@pytest.mark.parametrize("corpus_name", ["phrases", "multi30k-tok"])
def test_recipes_are_of_one_size(corpus_name):
    """Where they are compared, to 5 %."""
    modules = [load_recipe(name) for name in RECIPES]
    configs = [recipe.CONFIGS[corpus_name] for recipe in modules]
    sizes = configs[0].source_vocabulary_size, configs[0].target_vocabulary_size
    counts = [
        without_initial_weights(partial(recipe.build, one, *sizes)).count_params()
        for recipe, one in zip(modules, configs, strict=True)
    ]
    assert max(abs(count / counts[0] - 1) for count in counts) < 0.05, dict(zip(RECIPES, counts, strict=True))
    assert len({(c.epochs, c.batch_size, c.source_vocabulary_size, c.target_vocabulary_size) for c in configs}) == 1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["attention=local_p", "score=dot", "window=3"], ("LocalPredictiveAttention", "DotAttention", 3)),
        (["attention=local_m"], ("LocalMonotonicAttention", "GeneralAttention", 10)),
    ],
)
def test_luong_has_the_attention_chosen(settings, expected):
    recipe = load_recipe("luong")
    config = override(recipe.Config(), ["units=8", "embedding_size=8", "readout_size=8", *settings])
    attention = recipe.build(config, 11, 13).decoder.attentions[0]
    assert (type(attention).__name__, type(attention.score).__name__, attention.window) == expected
    with pytest.raises(ValueError, match=r"local_m, local_p\. Received: 'dot'"):
        override(recipe.Config(), ["attention=dot", "window=3"])
    with pytest.raises(ValueError, match="`window` of at least 1"):
        override(recipe.Config(), ["attention=local_p", "window=0"])
