"""Compiled inference: traced once, equal to Keras' own `predict_on_batch`, and of no effect on training after it."""

import sys

import keras
import numpy as np
import pytest

from keras_attn.backend import inference_function
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import SearchModel
from keras_attn.search import beam_search, greedy_search
from tests.contracts.model_rows import ONE_EACH, VS, make, some_inputs

on_torch = pytest.mark.skipif(keras.backend.backend() != "torch", reason="torch alone has an inference mode")


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="torch compiles nothing, JAX each shape")
def test_one_graph_serves_all_lengths_of_so_many_rows(monkeypatch, rng):
    traced, call = [], SearchModel.call
    monkeypatch.setattr(SearchModel, "call", lambda self, batch: traced.append(1) or call(self, batch))
    search = SearchModel(make("rnnsearch"), beam_search, 6, beam_size=2)
    batches = []
    for rows, length in ((1, 4), (1, 8), (2, 6)):
        ids = rng.integers(4, VS, (rows, length)).astype("int32")
        batches.append({"encoder_token_ids": ids, "row_max_length": np.full(rows, 5, "int32")})
    found = [search.predict_on_batch(batch) for batch in batches]
    assert len(traced) == 2
    for batch, result in zip(batches, found, strict=True):
        expected = keras.Model.predict_on_batch(search, batch)
        assert result.keys() == expected.keys()
        for name, value in result.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_person_is_told_once_what_compiles(is_terminal, monkeypatch, capsys, rng):
    monkeypatch.setattr("keras_attn.backend.inference._PATIENCE", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    search = SearchModel(make("rnnsearch"), greedy_search, 6)
    for length in (4, 4, 8):
        ids = rng.integers(4, VS, (1, length)).astype("int32")
        search.predict_on_batch({"encoder_token_ids": ids, "row_max_length": np.full(1, 5, "int32")})
    lines = {"tensorflow": 1, "jax": 2, "torch": 0}[keras.backend.backend()]  # TensorFlow's graph serves all lengths
    assert capsys.readouterr().err.count("keras_attn compiles the search;") == lines * is_terminal


@on_torch
def test_weights_built_by_the_first_search_can_be_trained(rng):
    """Weights made in `torch.inference_mode` could not."""
    ids = rng.integers(4, 11, (2, 5)).astype("int32")
    model = keras.Sequential([keras.layers.Embedding(11, 3), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    infer = inference_function(model)
    expected = infer(ids)
    np.testing.assert_array_equal(infer(ids), expected)
    assert model.built
    model.fit(ids, np.ones((2, 5, 2)), verbose=0)
    assert np.abs(infer(ids) - expected).max() > 0


@on_torch
@pytest.mark.parametrize("name", ONE_EACH)
def test_a_model_that_has_searched_can_be_trained(name):
    """Nothing that a search leaves in a layer, of a length that no call before had, is a tensor of inference alone."""
    model, inputs = make(name), some_inputs()
    search = SearchModel(model, greedy_search, 6)
    for length in (None, None, -1):
        search.predict_on_batch({"encoder_token_ids": inputs["encoder_token_ids"][:, :length]})
    model.compile("sgd", SmoothedCrossentropy(0.0))
    shorter = inputs | {"encoder_token_ids": inputs["encoder_token_ids"][:, :-1]}
    assert np.isfinite(model.train_on_batch(shorter, inputs["decoder_token_ids"]))
