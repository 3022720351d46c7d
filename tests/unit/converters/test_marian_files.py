"""Files of Marian: what is read of them, and an error for all else, before it takes memory."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest

import keras_attn as ka
from keras_attn.converters import from_marian
from tests.converters.test_from_marian import (
    NOT_READ,
    RECORDED,
    SOURCES,
    TARGETS,
    WHERE,
    log_probs,
    translator_of,
    vocabularies,
)


def test_a_model_is_saved(tmp_path):
    translator_of("tied").save_to_preset(tmp_path)
    scored = ka.Translator.from_preset(tmp_path).score(SOURCES, TARGETS)
    np.testing.assert_allclose(log_probs(scored), RECORDED["models"]["tied"]["scores"], atol=1e-4)


def test_a_file_for_both_sides_is_one_vocabulary():
    model, source, target = from_marian(WHERE / "tied_all.npz", WHERE / "joint.yml")
    assert source.fingerprint == target.fingerprint
    assert model.source_embedding is model.target_embedding
    assert (source.vocabulary_size, source.special_ids.pad, source.special_ids.start) == (60, 58, 59)
    with pytest.raises(ValueError, match=r"for source and target each\. Received: \["):
        from_marian(WHERE / "tied_all.npz", [WHERE / "joint.yml"] * 3)


def test_the_norms_of_nematus_are_not_read():
    for name in NOT_READ:
        with pytest.raises(ValueError, match=r"with the cells gru or lstm\. Received: gru-nematus in .*norm.npz"):
            from_marian(WHERE / f"{name}.npz", vocabularies(name))


def rewritten(path, target, old="", new="", **arrays):
    """A copy of a model, with a part of its options replaced, and arrays; None leaves one out."""
    with np.load(path) as file:
        stored = {name: file[name] for name in file.files}
    text = stored["special:model.yml"].tobytes().decode()
    assert old in text
    options = np.frombuffer((text.replace(old, new, 1) if old else text).encode(), "int8")
    stored |= {"special:model.yml": options, **arrays}
    np.savez(target, **{name: array for name, array in stored.items() if array is not None})
    return target


OPTIONS = [
    ("type: s2s", "type: transformer", "of type s2s, nematus, amun. Received: .*transformer"),
    ("right-left: false", "right-left: true", "`right-left` of false. Received: true"),
    ("lemma-dim-emb: 0", "lemma-dim-emb: 7", "`lemma-dim-emb` of 0. Received: 7"),
    ("enc-cell: gru", "enc-cell: ssru", "`enc-cell` of gru or .*lstm. Received: ssru"),
    ("enc-cell: gru", "enc-cell: lstm", "same cells .* Received: gru and lstm"),
    ("input-types:\n  []", "input-types:\n  - class", "text alone. Received: .*'class'"),
    ("dim-rnn: 6", "dim-rnn: 99999999", "`dim-rnn` to be a size .*'99999999'"),
    ("  - 48\n  - 48", "  - 16777216\n  - 48", r"'encoder_Wemb' of shape \(16777216, 4\) .*Received: \(48, 4\)"),
    ("enc-depth: 1", "enc-depth: 100", r"'encoder_bi_l2_cell1_b' of shape .*Received: none"),
    ("output-omit-bias: false", "output-omit-bias: True", "`output-omit-bias` to be true or false .*Received: 'True'"),
    ("output-omit-bias: false", "output-omit-bias: true", "besides them: decoder_ff_logit_l2_b"),
    ("dec-cell-base-depth: 2", "dec-cell-base-depth: 1", "besides them: decoder_cell2_U, decoder_cell2_Ux"),
]
ARRAYS = [
    ("decoder_U_att", None, r"'decoder_U_att' of shape \(12, 1\) .*Received: none"),
    ("decoder_ff_logit_l2_b", None, r"'decoder_ff_logit_l2_b' of shape \(1, 48\) .*Received: none"),
    ("decoder_W_cov", np.ones((2, 2), "float32"), "besides them: decoder_W_cov"),
    ("decoder_U_att", np.ones((12, 1)), "float32, each once. Received: 'decoder_U_att' in float64"),
    ("special:model.yml", None, "Received: It has no special:model.yml"),
    ("special:model.yml", np.ones(1 << 17, "int8"), "has more than 65,536 bytes"),
    ("special:model.yml", np.full(9, -1, "int8"), "options in special:model.yml .*can't decode byte 0xff"),
]


@pytest.mark.parametrize(("old", "new", "message"), [*OPTIONS, *ARRAYS])
def test_options_and_arrays_that_are_not_read_are_named(old, new, message, tmp_path, memory):
    change = (old, new) if isinstance(new, str) else ()
    arrays = {} if change else {old: new}
    path = rewritten(WHERE / "s2s.npz", tmp_path / "model.npz", *change, **arrays)
    with pytest.raises(ValueError, match=message):
        from_marian(path, vocabularies("s2s"))
    assert memory() < 1 << 20


def header_of(shape, dtype="<f4"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.fixture
def memory():
    """A function that returns the most bytes that Python and NumPy have taken since."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def test_a_damaged_or_hostile_file_is_refused_before_it_takes_memory(tmp_path, memory):
    files = vocabularies("s2s")
    content = (WHERE / "s2s.npz").read_bytes()
    path = tmp_path / "model.npz"

    def refuse(message):
        with pytest.raises(ValueError, match=f"to be a model that Marian saved as .npz. Received: {message}"):
            from_marian(path, files)

    path.write_bytes(content[: len(content) // 2])
    refuse("File is not a zip file")
    place = content.index(b"decoder_Wc_att") + 200
    path.write_bytes(content[:place] + bytes(8) + content[place + 8 :])
    refuse("Bad CRC-32")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("special:model.yml.npy", bytes(1 << 20))
    refuse("Expected .* bytes that are not compressed")
    hostile = [header_of((1 << 40,)), header_of((1 << 40, 1 << 40)), header_of((-1,)), header_of((0, 1 << 70))]
    hostile += [header_of((2,), [("a", "O")]) + bytes(16), header_of((9,))[:40], b"\x93NUMPY\x09\x00", b"PICKLE"]
    hostile += [header_of((9,)).replace(b"}", b"|") + bytes(36)]
    for array in hostile:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("decoder_U_att.npy", array)
            archive.writestr("special:model.yml.npy", header_of((0,)))
        refuse("")
    place = content.index(b"PK\x01\x02") + 10  # how the first array is compressed: by deflate, the file says
    path.write_bytes(content[:place] + b"\x08" + content[place + 1 :])
    refuse("")
    path.write_bytes(content)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("decoder_U_att.npy", header_of((12, 1)) + bytes(48))
    refuse("Some of its arrays are stored twice")
    assert memory() < 1 << 22


MODEL, WORDS = WHERE / "tied_all.npz", WHERE / "joint.yml"


@pytest.mark.parametrize(
    ("model", "words", "error", "message"),
    [
        (None, WORDS, ValueError, "Expected a model of Marian. Received: None"),
        (WHERE / "none.npz", WORDS, FileNotFoundError, "Expected a model of Marian. .*none.npz', which does not exist"),
        (WHERE, WORDS, FileNotFoundError, "Expected a model of Marian. .*, which is no file"),
        (MODEL, None, ValueError, "for source and target each. Received: None"),
        (MODEL, [WORDS, None], ValueError, "Expected a vocabulary of Marian. Received: None"),
        (MODEL, WHERE, FileNotFoundError, "Expected a vocabulary of Marian. .*, which is no file"),
    ],
)
def test_what_is_no_file_is_refused(model, words, error, message):
    with pytest.raises(error, match=message):
        from_marian(model, words)


def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path):
    """Models and SentencePiece's vocabularies."""
    model, files = WHERE / "pieces.npz", vocabularies("pieces")
    content, pieces = model.read_bytes(), files[1].read_bytes()
    for end in range(0, len(content), 997):
        (tmp_path / "model.npz").write_bytes(content[:end])
        with pytest.raises(ValueError, match="to be a model that Marian saved"):
            from_marian(tmp_path / "model.npz", files)
    for end in range(0, len(pieces), 29):
        (tmp_path / "target.spm").write_bytes(pieces[:end])
        with pytest.raises(ValueError, match=r"to be a SentencePiece model|pieces, as the model has"):
            from_marian(model, [files[0], tmp_path / "target.spm"])


def test_the_names_of_nematus_and_of_older_versions_are_known(tmp_path):
    """An output that is not transposed, biases of one axis, no option of a bias, and what Nematus keeps besides."""
    with np.load(WHERE / "nematus.npz") as file:
        output, bias = file["decoder_ff_logit_l2_Wt"], file["decoder_b"]
    older = {"decoder_ff_logit_l2_Wt": None, "ff_logit_W": output.T, "decoder_b": bias[0], "uidx": np.ones(1, "int64")}
    path = rewritten(WHERE / "nematus.npz", tmp_path / "model.npz", "output-omit-bias: false\n", "", **older)
    translator = ka.Translator.from_marian(path, vocabularies("nematus"))
    recorded = RECORDED["models"]["nematus"]["scores"]
    np.testing.assert_allclose(log_probs(translator.score(SOURCES, TARGETS)), recorded, atol=1e-4)


def test_pieces_of_another_program_are_not_exported(tmp_path):
    pytest.importorskip("tensorflow_text")
    with pytest.raises(ValueError, match=r"can repeat.* a SentencePiece model of another program"):
        translator_of("pieces").export(tmp_path)
