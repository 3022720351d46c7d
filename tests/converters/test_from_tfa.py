"""Weights that users of tensorflow_addons and Keras 2 keep: `tests/fixtures/record_tfa_checkpoints.py` wrote them."""

import re
import shutil
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_attn as ka
from keras_attn.converters import from_tfa
from keras_attn.layers import RNNEncoder
from keras_attn.models import RecurrentSeq2Seq
from tests import fixtures

pytestmark = pytest.mark.by_turns

WHERE = Path(fixtures.__file__).with_name("tfa_checkpoints")
SOURCE, TARGET = 13, 17
with np.load(WHERE / "outputs.npz", allow_pickle=False) as file:
    RECORDED = dict(file)


def model(encoder, cell, attention, width, bridge=None, **options):
    return RecurrentSeq2Seq(
        source_embedding=layers.Embedding(SOURCE, width),
        target_embedding=layers.Embedding(TARGET, width),
        encoder=encoder,
        bridge=bridge,
        decoder=ka.AttentionDecoder(cell, attention, attend="after", input_feeding=True, **options),
        output_projection=layers.Dense(TARGET),
    )


def lstms(units=6):
    return layers.StackedRNNCells([layers.LSTMCell(units) for _ in range(2)])


MODELS = {
    "luong_lstm": lambda: model(
        RNNEncoder(layers.LSTMCell(6)),
        layers.LSTMCell(6),
        ka.GeneralAttention(),
        width=4,
        attentional=ka.AttentionalLayer(6, activation=None),
    ),
    "bahdanau_gru": lambda: model(
        RNNEncoder(layers.GRUCell(5), backward_cell=layers.GRUCell(5)),
        layers.GRUCell(10, reset_after=False),
        ka.BahdanauAttention(7, normalize=True),
        width=5,
        attentional="context",
    ),
    "pair": lambda: model(
        RNNEncoder(layers.LSTMCell(6)),
        layers.GRUCell(6),
        [ka.BahdanauMonotonicAttention(6, normalize=True), ka.GeneralMonotonicAttention(use_scale=True)],
        width=4,
        bridge=layers.Identity(),  # the GRU starts from h alone
        attentional=[ka.AttentionalLayer(5, activation=None) for _ in range(2)],
    ),
    "stacked": lambda: model(
        RNNEncoder(lstms()),
        lstms(),
        ka.LuongAttention(ka.GeneralAttention(use_scale=True)),
        width=6,
        attentional=ka.AttentionalLayer(8),
    ),
}
PATHS = {name: WHERE / name for name in MODELS} | {"pair": WHERE / "pair" / "weights", "stacked": WHERE / "stacked.h5"}


BAHDANAU = "bahdanau_decoder/attention_wrapper_1"
LUONG = "translator/decoder"
# What the error lists, by what their programs call it: "luong_lstm" has the tutorial's names.
MAPPINGS = {
    "luong_lstm": None,
    "bahdanau_gru": {
        "source_embedding": "bahdanau_encoder/embedding_2",
        "encoder/cell": "bahdanau_encoder/bidirectional/forward_gru/gru_cell",
        "encoder/backward_cell": "bahdanau_encoder/bidirectional/backward_gru/gru_cell",
        "target_embedding": "bahdanau_decoder/embedding_3",
        "decoder/cell": f"{BAHDANAU}/gru_cell",
        "decoder/attention": {
            "memory_layer/kernel": "bahdanau_decoder/BahdanauAttention/memory_layer/kernel",
            "query_layer/kernel": f"{BAHDANAU}/BahdanauAttention/kernel",
            **{f"attention_{name}": f"{BAHDANAU}/BahdanauAttention/attention_{name}" for name in "vgb"},
        },
        "output_projection": "bahdanau_decoder/dense_1",
    },
    "pair": {"target_embedding": "decoder/embed", "output_projection": "decoder/out"},
    "stacked": {
        "source_embedding": "translator/encoder_embedding",
        **{f"encoder/cell/{i}": f"translator/encoder/stacked_rnn_cells/encoder_cell_{i}" for i in range(2)},
        "target_embedding": "translator/decoder_embedding",
        **{f"decoder/cell/{i}": f"{LUONG}/stacked_rnn_cells_1/decoder_cell_{i}" for i in range(2)},
        "decoder/attention": {
            "memory_layer/kernel": "translator/LuongAttention/memory_layer/kernel",
            "attention_g": f"{LUONG}/LuongAttention/attention_g",
        },
        "decoder/attentional": f"{LUONG}/attention_layer",
        "output_projection": "translator/output",
    },
}


def logits(model):
    return ops.convert_to_numpy(
        model({"encoder_token_ids": RECORDED["source"], "decoder_token_ids": RECORDED["target"]})
    )


def weights(model):
    return [ops.convert_to_numpy(weight) for weight in model.weights]


@pytest.mark.parametrize("name", MODELS)
def test_the_outputs_are_those_of_the_recorded_model(name):
    ours = MODELS[name]()
    assert np.abs(logits(ours) - RECORDED[name]).max() > 0.1
    places = from_tfa(PATHS[name], ours, mapping=MAPPINGS[name])
    np.testing.assert_allclose(logits(ours), RECORDED[name], atol=1e-5)
    assert {place.split("/")[0] for place in places} == {
        "source_embedding", "encoder", "target_embedding", "decoder", "output_projection",
    }  # fmt: skip


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


MESSAGES = {
    "another cell": (
        lambda: ka.AttentionDecoder(layers.GRUCell(6), ka.GeneralAttention(), attend="after"),
        {},
        r"for 'decoder/cell' of bias \(2, 18\), .* Received: 'decoder/decoder_rnn_cell' with bias \(24,\)",
    ),
    "a scale": (
        lambda: ka.AttentionDecoder(lstm_of_10(), ka.GeneralAttention(use_scale=True), attend="after"),
        {},
        r"for 'decoder/attention' of .* \(made with use_scale=False\)",
    ),
    "an unknown part": (
        lambda: layers.Dense(17, name="fc"),
        {"decoder": "fc"},
        r"`mapping` among \['fc'\]. Received: 'dec",
    ),
    "an unknown part there": (
        lambda: layers.Dense(17, name="fc"),
        {"fc": "decoder/out"},
        r"one of \[.*'decoder/fc'.*\]. Received: 'decoder/out'",
    ),
    "a mapping that does not fit": (
        lambda: layers.Dense(17, name="fc"),
        {"fc": "encoder/embedding"},
        r"for 'fc' of bias \(17,\), kernel \(6, 17\). Received: 'encoder/embedding' with embeddings \(13, 4\)",
    ),
}


def lstm_of_10():
    """The cell of "luong_lstm", whose inputs are 4 wide with an attention of 6."""
    cell = layers.LSTMCell(6)
    cell.build((None, 10))
    return cell


@pytest.mark.parametrize("case", MESSAGES)
def test_what_does_not_fit_is_refused_before_anything_is_loaded(case):
    make, mapping, message = MESSAGES[case]
    layer = make()
    if isinstance(layer, ka.AttentionDecoder):
        layer.build((None, 3, 10), (None, 5, 6))
    else:
        layer.build((None, 6))
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
    (index,) = copied.glob("*.index")
    index.write_bytes(index.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"to be a checkpoint. Received: "):
        from_tfa(copied, dense)
    monkeypatch.setattr("keras_attn.requirements.is_installed", lambda _: False)
    with pytest.raises(ModuleNotFoundError, match="Expected tensorflow to be installed for reading its checkpoints"):
        from_tfa(PATHS["luong_lstm"], dense)
