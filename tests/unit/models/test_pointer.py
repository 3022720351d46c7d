"""Models with `pointer=True`: batches of text, and what is refused."""

import numpy as np
import pytest

import keras_attn
from keras_attn import ParallelDataset, models
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.text import Tokenizer
from tests.models.test_pointer import INPUTS, LABELS, SIZES, SOURCE, S, V, make


def test_batches_of_text_have_temporary_ids_and_every_model_trains_on_them():
    lines = ["ada met bo", "bo met ada and cy", "we met"], ["bo met ada", "cy and ada", "we met"]
    tokenizer = Tokenizer.train(["we met and"], level="word")
    assert tokenizer.vocabulary_size == V
    data = ParallelDataset.from_text(*lines, tokenizer, tokenizer, batch_size=2, pointer=True, shuffle=False)
    inputs, labels, _ = data[0]
    assert data.largest_token_ids == (V + 4, V + 4)
    assert (inputs["decoder_token_ids"][:, 1:] == np.where(labels == 3, 0, labels)[:, :-1]).all()
    model = make()
    model.compile("adam", SmoothedCrossentropy(0.0))
    assert np.isfinite(model.fit(data, verbose=0, validation_data=data).history["val_loss"]).all()
    plain = make(pointer=False)
    plain.compile("adam", SmoothedCrossentropy(0.0))
    with pytest.raises(ValueError, match=f"from 0 to {V - 1}, the ids of the model's vocabulary. Received: {V + 4}"):
        plain.fit(data, verbose=0)
    other = Tokenizer.train(["we met or"], level="word")
    with pytest.raises(ValueError, match="Expected the same tokenizer for source and target"):
        ParallelDataset.from_text(*lines, tokenizer, other, batch_size=2, pointer=True)
    with pytest.raises(ValueError, match="Expected on_too_long='drop' with `pointer=True`"):
        ParallelDataset.from_text(
            *lines, tokenizer, tokenizer, batch_size=2, pointer=True, max_length=4, on_too_long="truncate"
        )


def test_what_does_not_fit_is_refused():
    with pytest.raises(
        ValueError, match=r"Expected one joint vocabulary with `pointer=True`.*target_vocabulary_size=8"
    ):
        models.RNNSearch(V, V + 1, **SIZES, pointer=True)
    model = make()
    model.compile("adam", SmoothedCrossentropy(0.1))
    with pytest.raises(ValueError, match=r"Expected `SmoothedCrossentropy\(0.1, vocabulary_size=7\)`"):
        model.fit(INPUTS, LABELS, verbose=0)
    beyond = {**INPUTS, "encoder_token_ids": SOURCE + S + 1}
    with pytest.raises(ValueError, match=f"Expected encoder_token_ids from 0 to {V + S - 1}"):
        keras_attn.check_ids((beyond, LABELS), model)
    with pytest.raises(ValueError, match=r"with the same pointer\. Received: True, False"):
        models.Ensemble([make(), make(pointer=False)])
