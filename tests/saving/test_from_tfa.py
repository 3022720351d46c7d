"""Weights that users of tensorflow_addons and Keras 2 keep: `tests/fixtures/record_tfa_checkpoints.py` wrote them."""

import shutil
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_attn as ka
from keras_attn.layers import RNNEncoder
from keras_attn.models import RecurrentSeq2Seq
from keras_attn.saving import from_tfa
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
    places = from_tfa(PATHS[name], ours)
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
    from_tfa(tmp_path / "whole.h5", ours)
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


def test_what_cannot_be_guessed_is_asked_for():
    """The cells of both directions have one shape, and a dict of cells names no direction."""
    cells = [layers.GRUCell(5) for _ in range(3)]
    for cell in cells:
        cell.build((None, 5))
    with pytest.raises(ValueError, match=r"'first'. Received 2 that fit: .* Say which.*mapping={'first': ") as error:
        from_tfa(PATHS["bahdanau_gru"], {"first": cells[0]})
    forward, backward = sorted(str(error.value).split("that fit: ")[1].split(". Say")[0].split(", "), reverse=True)
    assert "forward" in forward
    by_weights = {name: f"{backward}/{name}" for name in ("kernel", "recurrent_kernel", "bias")}
    with pytest.warns(UserWarning, match="without one"):
        from_tfa(PATHS["bahdanau_gru"], {"a": cells[0], "b": cells[1]}, mapping={"a": backward})
    with pytest.warns(UserWarning, match="without one"):
        from_tfa(PATHS["bahdanau_gru"], {"c": cells[2]}, mapping={"c": by_weights})
    first, second, third = (weights(cell) for cell in cells)
    assert np.abs(first[0] - second[0]).max() > 0.1
    np.testing.assert_array_equal(first[0], third[0])


MESSAGES = {
    "another cell": (
        lambda: ka.AttentionDecoder(layers.GRUCell(6), ka.GeneralAttention(), attend="after"),
        {},
        r"for 'decoder/cell', with bias \(2, 18\), .* Received none; what is nearest: 'decoder/decoder_rnn_cell' with",
    ),
    "another size": (
        lambda: ka.AttentionDecoder(layers.LSTMCell(7), ka.GeneralAttention(), attend="after"),
        {},
        r"for 'decoder/cell', with bias \(28,\), .* nearest: 'decoder/decoder_rnn_cell' with bias \(24,\)",
    ),
    "another attention": (
        lambda: ka.AttentionDecoder(lstm_of_10(), ka.BahdanauAttention(6), attend="after"),
        {},
        r"for 'decoder/attention', with .*query_layer/kernel \(6, 6\). .* nearest: 'decoder/attention_mechanism' with",
    ),
    "a scale": (
        lambda: ka.AttentionDecoder(lstm_of_10(), ka.GeneralAttention(use_scale=True), attend="after"),
        {},
        r"for 'decoder/attention', .* \(made with use_scale=False\)",
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
    "an unknown weight there": (
        lambda: layers.Dense(17, name="fc"),
        {"fc": {"kernel": "decoder/out/kernel"}},
        r"weights of the file in `mapping`: .* Received: 'decoder/out/kernel'",
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


def test_one_part_of_the_file_is_not_given_to_two_of_ours():
    """The model has one embedding of 17 words, the decoder's; no word says which of these is the decoder's."""
    embeddings = [layers.Embedding(17, 5) for _ in range(2)]
    for embedding in embeddings:
        embedding.build(None)
    with pytest.raises(ValueError, match=r"parts of the file for a, b. Received one that fits each of them: "):
        from_tfa(PATHS["bahdanau_gru"], dict(zip("ab", embeddings, strict=True)))


def test_the_other_gru_is_named():
    cell = layers.GRUCell(10)
    cell.build((None, 15))
    mapping = {"cell": "bahdanau_decoder/attention_wrapper_1/gru_cell"}
    with pytest.raises(ValueError, match=r"\(that of `GRUCell\(..., reset_after=False\)`\)"):
        from_tfa(PATHS["bahdanau_gru"], {"cell": cell}, mapping=mapping)


def test_a_gru_without_biases_of_another_size_is_a_sentence(tmp_path):
    def saved_cell(units):
        cell = layers.GRUCell(units, use_bias=False)
        cell.build((None, 3))
        return cell

    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file.attrs["layer_names"] = [b"gru"]
        group = file.create_group("gru")
        group.attrs["weight_names"] = [b"gru/kernel:0", b"gru/recurrent_kernel:0"]
        for name, weight in zip(("kernel:0", "recurrent_kernel:0"), weights(saved_cell(5)), strict=True):
            group.create_dataset(f"gru/{name}", data=weight)
    with pytest.raises(ValueError, match=r"Received none; what is nearest: 'gru' with kernel \(3, 15\)"):
        from_tfa(tmp_path / "weights.h5", saved_cell(4))


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
