"""Files of tensorflow_addons and Keras 2: where their weights go, and an error for all that does not fit."""

import re
import shutil

import h5py
import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_attn as ka
from keras_attn.converters import from_tfa
from keras_attn.layers import RNNEncoder
from tests.converters.test_from_tfa import MAPPINGS, MODELS, PATHS, RECORDED, logits, lstms, weights


def test_a_whole_model_of_keras_2_has_its_weights_in_a_group(tmp_path):
    with h5py.File(PATHS["stacked"], "r") as weights, h5py.File(tmp_path / "whole.h5", "w") as whole:
        group = whole.create_group("model_weights")
        for name in weights:
            weights.copy(name, group)
        names = list(weights.attrs["layer_names"])
        group.attrs["layer_names0"], group.attrs["layer_names1"] = names[:2], names[2:]  # as Keras divides long lists
    ours = MODELS["stacked"]()
    from_tfa(tmp_path / "whole.h5", ours, mapping=MAPPINGS["stacked"])
    np.testing.assert_allclose(logits(ours), RECORDED["stacked"], atol=1e-5)


def test_a_part_of_the_model_leaves_the_rest_of_the_file():
    ours, whole = (MODELS["luong_lstm"]() for _ in range(2))
    from_tfa(PATHS["luong_lstm"], whole)
    with pytest.warns(UserWarning, match=r"7 weights without one: .*fc/kernel \(6, 17\)") as caught:
        places = from_tfa(PATHS["luong_lstm"], ours.decoder)
    assert "optimizer" not in str(caught[0].message)
    assert places["decoder/cell"] == "decoder/decoder_rnn_cell"
    for a, b in zip(weights(ours.decoder), weights(whole.decoder), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_has_no_usual_name_is_asked_for():
    cells = [layers.GRUCell(5) for _ in range(2)]
    for cell in cells:
        cell.build((None, 5))
    message = (
        r"in `mapping` for 'first': mapping={'first': ..., ...}. Received: .*'(\S+backward_gru/gru_cell)' with bias"
    )
    with pytest.raises(ValueError, match=message) as error:
        from_tfa(PATHS["bahdanau_gru"], {"first": cells[0]})
    backward = re.search(message, str(error.value))[1]
    by_weights = {name: f"{backward}/{name}" for name in ("kernel", "recurrent_kernel", "bias")}
    for cell, given in zip(cells, (backward, by_weights), strict=True):
        with pytest.warns(UserWarning, match="without one"):
            from_tfa(PATHS["bahdanau_gru"], {"first": cell}, mapping={"first": given})
    first, second = (weights(cell) for cell in cells)
    assert np.abs(first[0]).max() > 1  # no initial values
    np.testing.assert_array_equal(first[0], second[0])


def test_the_usual_names_of_stacks_lists_and_both_directions(tmp_path):
    """A checkpoint of objects with the names that Keras 2 and tensorflow_addons give theirs."""
    tf = pytest.importorskip("tensorflow")

    def objects(places):
        if "" in places:
            return tf.Variable(places[""])
        inner = {name: {} for name, _, _ in (place.partition("/") for place in places)}
        for place, array in places.items():
            name, _, rest = place.partition("/")
            inner[name][rest] = array
        return tf.train.Checkpoint(**{name: objects(own) for name, own in inner.items()})

    encoder = RNNEncoder(layers.GRUCell(5), backward_cell=layers.GRUCell(5))
    decoder = ka.AttentionDecoder(
        lstms(10),
        [ka.BahdanauAttention(7), ka.GeneralAttention()],
        attend="after",
        input_feeding=True,
        attentional=[ka.AttentionalLayer(5, activation=None) for _ in range(2)],
    )
    encoder.build((None, None, 4))
    decoder.build((None, None, 4), (None, None, 10))
    wrapper = "decoder/attention_wrapper"
    folders = {
        "encoder/bidirectional/forward_layer/cell": encoder.cell,
        "encoder/bidirectional/backward_layer/cell": encoder.backward_cell,
        **{f"{wrapper}/_cell/cells/{i}": cell for i, cell in enumerate(decoder.cell.cells)},
        **{f"{wrapper}/_attention_layers/{i}": layer for i, layer in enumerate(decoder.attentional)},
    }
    variables = {f"{folder}/{one.name}": one for folder, layer in folders.items() for one in layer.weights}
    for i, attention in enumerate(decoder.attentions):
        names = {"key_kernel": "memory_layer/kernel", "kernel": "memory_layer/kernel"}
        names |= {"query_kernel": "query_layer/kernel", "score_vector": "attention_v"}
        variables |= {f"{wrapper}/_attention_mechanisms/{i}/{names[one.name]}": one for one in attention.weights}
    rng = np.random.default_rng(0)
    arrays = {place: rng.normal(size=variable.shape).astype("float32") for place, variable in variables.items()}
    objects(arrays).write(str(tmp_path / "weights"))
    from_tfa(tmp_path / "weights", {"encoder": encoder, "decoder": decoder})
    for place, variable in variables.items():
        array = arrays[place]
        if "_attention_layers" in place:
            array = np.concatenate([array[10:], array[:10]])
        np.testing.assert_array_equal(ops.convert_to_numpy(variable), array, err_msg=place)


def decoder(units, **options):
    """Its inputs are 4 wide with an attention of 6, as those of "luong_lstm"."""
    cell = layers.GRUCell(units) if options.pop("gru", False) else layers.LSTMCell(units)
    made = ka.AttentionDecoder(cell, ka.GeneralAttention(**options), attend="after")
    cell.build((None, 10))
    made.build((None, 3, 10), (None, 5, 6))
    return made


def dense():
    layer = layers.Dense(17, name="fc")
    layer.build((None, 6))
    return layer


@pytest.mark.parametrize(
    ("make", "mapping", "message"),
    [
        (
            lambda: decoder(6, gru=True),
            {},
            r"for 'decoder/cell' of bias \(2, 18\), .* Received: 'decoder/decoder_rnn_cell' with bias \(24,\)",
        ),
        (lambda: decoder(6, use_scale=True), {}, r"for 'decoder/attention' of .* \(made with use_scale=False\)"),
        (dense, {"decoder": "fc"}, r"`mapping` among \['fc'\]. Received: 'dec"),
        (dense, ["a"], r"`mapping` to be a dict. Received: \['a'\]"),
        (dense, {"fc": ["a"]}, r"one of \[.*'decoder/fc'.*\]. Received: \['a'\]"),
        (dense, {"fc": "decoder/out"}, r"one of \[.*'decoder/fc'.*\]. Received: 'decoder/out'"),
        (
            dense,
            {"fc": "encoder/embedding"},
            r"for 'fc' of bias \(17,\), kernel \(6, 17\). Received: 'encoder/embedding' with embeddings \(13, 4\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_loaded(make, mapping, message):
    layer = make()
    before = weights(layer)
    with pytest.raises(ValueError, match=message):
        from_tfa(PATHS["luong_lstm"], layer, mapping=mapping)
    for a, b in zip(before, weights(layer), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_other_gru_is_named():
    cell = layers.GRUCell(10)
    cell.build((None, 15))
    mapping = {"cell": "bahdanau_decoder/attention_wrapper_1/gru_cell"}
    with pytest.raises(ValueError, match=r"\(that of `GRUCell\(..., reset_after=False\)`\)"):
        from_tfa(PATHS["bahdanau_gru"], {"cell": cell}, mapping=mapping)


def test_what_is_no_checkpoint_is_refused(tmp_path, monkeypatch):
    dense = layers.Dense(3)
    with pytest.raises(ValueError, match="that has its weights: call it once"):
        from_tfa(PATHS["luong_lstm"], dense)
    dense.build((None, 2))
    for place in (tmp_path, tmp_path / "ckpt-1"):
        with pytest.raises(FileNotFoundError, match=r"Expected a checkpoint, such as .*; or a SavedModel. Received: "):
            from_tfa(place, dense)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        from_tfa(tmp_path / "weights.h5", dense)
    with pytest.raises(ValueError, match=r"Expected a checkpoint, a SavedModel or Keras 2's '.h5'. Received: None"):
        from_tfa(None, dense)
    (tmp_path / "weights.h5").write_bytes(b"PK")
    with pytest.raises(ValueError, match="as Keras 2 wrote them"):
        from_tfa(tmp_path / "weights.h5", dense)
    keras.Sequential([keras.Input((2,)), dense]).save_weights(tmp_path / "new.weights.h5")
    with pytest.raises(ValueError, match="has no layer_names"):
        from_tfa(tmp_path / "new.weights.h5", dense)
    for name, options in {
        "bomb": {"shape": (2**16, 2**16), "chunks": (2**8, 2**8)},
        "elsewhere": {"shape": (4,), "external": [(str(tmp_path / "weights.h5"), 0, 16)]},
    }.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file.create_group("dense").create_dataset("kernel:0", dtype="float32", **options)
            file.attrs["layer_names"], file["dense"].attrs["weight_names"] = ["dense"], ["kernel:0"]
        with pytest.raises(ValueError, match="dense/kernel:0 is not in the file as it is: compressed, or a link"):
            from_tfa(tmp_path / f"{name}.h5", dense)
    with pytest.raises(ValueError, match="save_weights"):
        from_tfa(tmp_path / "model.keras", dense)
    with pytest.raises(ValueError, match=r"Expected layers in `target`. Received: 3"):
        from_tfa(PATHS["stacked"], {"x": 3})
    copied = shutil.copytree(PATHS["luong_lstm"], tmp_path / "copied")
    (index,), (data,) = copied.glob("*.index"), copied.glob("*.data-*")
    whole = data.read_bytes()
    for path, content in (
        *((data, whole[: int(share * len(whole))]) for share in (0, 0.3, 0.9)),  # which has no checksum of its own
        (index, index.read_bytes()[:100]),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"to be a checkpoint. Received: "):
            from_tfa(copied, dense)
    monkeypatch.setattr("keras_attn.requirements.is_installed", lambda _: False)
    with pytest.raises(ModuleNotFoundError, match="Expected tensorflow to be installed for reading its checkpoints"):
        from_tfa(PATHS["luong_lstm"], dense)
