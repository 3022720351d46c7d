"""Padding that is not masked is read like any other word."""

import keras
import numpy as np

from keras_attn import SpecialIds, Tokenizer, Translator
from keras_attn.models import LSTMSeq2Seq, RNNSearch
from tests.test_special_ids import LINES, SIZES, SOURCE, TARGET, check_equal


def test_padding_that_is_not_masked_is_a_word_like_any_other():
    """An LSTM of Keras that reads all of a fixed length is the oracle."""
    ids = SpecialIds(pad=4, unknown=3, start=1, end=2)
    model = LSTMSeq2Seq(
        11, 13, units=5, num_layers=1, embedding_size=7, reverse_source=False, mask_padding=False, source_length=6,
        initializer="glorot_uniform", source_special_ids=ids, target_special_ids=ids,
    )  # fmt: skip
    tokens = np.array([[5, 6, 2, 4], [7, 2, 4, 4]], "int32")
    memory, _ = model.encode(keras.ops.convert_to_tensor(tokens))
    assert keras.ops.convert_to_numpy(memory["mask"]).tolist() == [[True] * 6] * 2
    plain = keras.layers.LSTM(5, return_sequences=True, recurrent_activation="sigmoid")
    embedded = keras.ops.take(
        model.source_embedding.weights[0], np.pad(tokens, [(0, 0), (0, 2)], constant_values=4), axis=0
    )
    plain.build(embedded.shape)
    cell = next(layer for layer in model.encoder._flatten_layers() if isinstance(layer, keras.layers.LSTMCell))
    plain.set_weights(cell.get_weights())
    _, state = model.encode(keras.ops.convert_to_tensor(tokens))
    expected = keras.ops.convert_to_numpy(plain(embedded))[:, -1]
    found = [keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(state)]
    assert any(x.shape == expected.shape and np.allclose(x, expected, atol=1e-5) for x in found)
    again = type(model).from_config(model.get_config())
    assert (again.mask_padding, again.source_length, again.source_special_ids) == (False, 6, ids)


def test_padding_that_is_not_masked_gives_the_same_in_any_batch():
    source, target = Tokenizer.from_vocabulary(SOURCE), Tokenizer.from_vocabulary(TARGET)
    sizes = SIZES | {"initializer": keras.initializers.RandomNormal(stddev=0.9)}
    model = RNNSearch(len(SOURCE), len(TARGET), **sizes, mask_padding=False, source_length=10)
    translator = Translator(model, source, target)
    together = translator.generate([*LINES, "a b c d e f g a b c d e f g"])
    for line, translation in zip(LINES, together, strict=False):
        check_equal(translator.generate([line]), [translation])
    assert len(together[-1].source_tokens) == 10  # cut, with its end token
