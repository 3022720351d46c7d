"""Models that Marian trained, and what it recorded of them: `tests/fixtures/record_marian.py`."""

import io
import json
import tracemalloc
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_attn as ka
from keras_attn.converters import from_marian
from keras_attn.losses import SmoothedCrossentropy
from tests import fixtures

pytestmark = pytest.mark.by_turns

ARCHIVE = Path(fixtures.__file__).with_name("marian.zip")
with zipfile.ZipFile(ARCHIVE) as archive:
    RECORDED = json.loads(archive.read("recorded.json"))
SOURCES, TARGETS = RECORDED["sources"], RECORDED["targets"]
NOT_READ = ["nematus_norm", "s2s_nematus_norm"]
READ = [name for name in RECORDED["models"] if name not in NOT_READ]
MARIANS = {"normalization": "none", "banned_tokens": ["<unk>"]}  # the options of its search
JOINT = ("tied_source", "tied_all", "everything")


def vocabularies(name):
    if name in JOINT:
        return ["joint.yml", "joint.yml"]
    return [f"{side}.{'spm' if name == 'pieces' else 'yml'}" for side in ("source", "target")]


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def translators(where):
    made = {}

    def translator(name):
        if name not in made:
            files = [where / file for file in vocabularies(name)]
            made[name] = ka.Translator.from_marian(where / f"{name}.npz", files)
        return made[name]

    return translator


def log_probs(translations):
    return [one.token_log_probs.sum() for one in translations]


@pytest.mark.parametrize("name", READ)
def test_scores_and_alignments_are_marians(name, translators):
    recorded = RECORDED["models"][name]
    scored = translators(name).score(SOURCES, TARGETS)
    np.testing.assert_allclose(log_probs(scored), recorded["scores"], atol=1e-4)
    for one, alignment in zip(scored, recorded["alignments"], strict=True):
        np.testing.assert_allclose(one.alignment, alignment, atol=1e-5)


@pytest.mark.parametrize("name", ["s2s", "lstm", "everything"])
def test_translations_are_marians(name, translators):
    """Marian's beam is narrower by each hypothesis that has ended, so that it may miss what is found here."""
    recorded, translator = RECORDED["models"][name], translators(name)
    greedy = translator.generate(SOURCES, beam_size=1, max_length=30, **MARIANS)
    assert [one.text for one in greedy] == [best[0] for ((best),) in recorded["greedy"]]
    np.testing.assert_allclose(log_probs(greedy), [best[1] for (best,) in recorded["greedy"]], atol=1e-4)
    found = translator.generate(SOURCES, beam_size=5, max_length=30, **MARIANS)
    scores = np.array([n_best[0][1] for n_best in recorded["beam"]])
    assert np.all(np.array(log_probs(found)) > scores - 1e-4)
    same = [one.text == n_best[0][0] for one, n_best in zip(found, recorded["beam"], strict=True)]
    assert np.mean(same) > 0.7
    np.testing.assert_allclose(np.array(log_probs(found))[same], scores[same], atol=1e-4)


@pytest.mark.once
def test_a_model_is_trained_on_and_saved(where, translators, tmp_path):
    translator = translators("tied")
    translator.save_to_preset(tmp_path)
    again = ka.Translator.from_preset(tmp_path)
    recorded = RECORDED["models"]["tied"]["scores"]
    np.testing.assert_allclose(log_probs(again.score(SOURCES, TARGETS)), recorded, atol=1e-4)
    tokenizers = again.source_tokenizer, again.target_tokenizer
    data = ka.ParallelDataset.from_text(SOURCES[:4], TARGETS[:4], *tokenizers, batch_size=4)
    again.model.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy(0.1))
    again.model.fit(data, epochs=3, verbose=0)
    assert np.sum(log_probs(again.score(SOURCES[:4], TARGETS[:4]))) > np.sum(recorded[:4])


@pytest.mark.once
def test_a_file_for_both_sides_is_one_vocabulary(where):
    model, source, target = from_marian(where / "tied_all.npz", where / "joint.yml")
    assert source.fingerprint == target.fingerprint
    assert model.source_embedding is model.target_embedding
    assert (source.vocabulary_size, source.special_ids.pad, source.special_ids.start) == (60, 58, 59)
    with pytest.raises(ValueError, match=r"for source and target each.* 3 of them"):
        from_marian(where / "tied_all.npz", [where / "joint.yml"] * 3)


@pytest.mark.once
@pytest.mark.parametrize("name", NOT_READ)
def test_the_norms_of_nematus_are_not_read(name, where):
    with pytest.raises(ValueError, match=r"with the cells gru or lstm\. Received: gru-nematus in .*norm.npz"):
        from_marian(where / f"{name}.npz", [where / file for file in vocabularies(name)])


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
    ("dec-cell-base-depth: 2", "dec-cell-base-depth: 1", "besides them: decoder_cell2_U, decoder_cell2_Ux"),
    ("ulr: false", "ulr:\n  a: b", "`name: value` .*Received in line 60: MappingStart"),
]
ARRAYS = [
    ("decoder_U_att", None, r"'decoder_U_att' of shape \(12, 1\) .*Received: none"),
    ("decoder_W_cov", np.ones((2, 2), "float32"), "besides them: decoder_W_cov"),
    ("decoder_U_att", np.ones((12, 1)), "float32, each once. Received: 'decoder_U_att' in float64"),
    ("special:model.yml", None, "Received: It has no special:model.yml"),
    ("special:model.yml", np.ones(1 << 17, "int8"), "has more than 65,536 bytes"),
    ("special:model.yml", np.full(9, -1, "int8"), "options in special:model.yml .*can't decode byte 0xff"),
    ("special:model.yml", np.frombuffer(b"a: &a [b]\nc: *a", "int8"), "in line 2: Alias"),
    ("special:model.yml", np.frombuffer(b"[" * 60_000, "int8"), "options in special:model.yml .*in .*line 1"),
    ("special:model.yml", np.frombuffer(b"type: '", "int8"), "Expected YAML. Received: .*line 1"),
]


@pytest.mark.once
@pytest.mark.parametrize(("old", "new", "message"), OPTIONS)
def test_options_that_are_not_read_are_named(old, new, message, where, tmp_path, memory):
    path = rewritten(where / "s2s.npz", tmp_path / "model.npz", old, new)
    with pytest.raises(ValueError, match=message):
        from_marian(path, [where / file for file in vocabularies("s2s")])
    assert memory() < 1 << 20


@pytest.mark.once
@pytest.mark.parametrize(("name", "array", "message"), ARRAYS)
def test_wrong_arrays_are_named(name, array, message, where, tmp_path):
    path = rewritten(where / "s2s.npz", tmp_path / "model.npz", **{name: array})
    with pytest.raises(ValueError, match=message):
        from_marian(path, [where / file for file in vocabularies("s2s")])


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


@pytest.mark.once
def test_a_damaged_or_hostile_file_is_refused_before_it_takes_memory(where, tmp_path, memory):
    files = [where / file for file in vocabularies("s2s")]
    content = (where / "s2s.npz").read_bytes()
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
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        from_marian(tmp_path / "none.npz", files)
    assert memory() < 1 << 22


@pytest.mark.once
def test_an_array_that_is_stored_twice_is_refused(where, tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes((where / "s2s.npz").read_bytes())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("decoder_U_att.npy", header_of((12, 1)) + bytes(48))
    with pytest.raises(ValueError, match="Received: Some of its arrays are stored twice"):
        from_marian(path, [where / file for file in vocabularies("s2s")])


@pytest.mark.once
def test_a_file_that_is_cut_off_anywhere_is_refused(where, tmp_path):
    """Models and SentencePiece's vocabularies."""
    model, files = where / "pieces.npz", [where / file for file in vocabularies("pieces")]
    content, pieces = model.read_bytes(), files[1].read_bytes()
    for end in range(0, len(content), 997):
        (tmp_path / "model.npz").write_bytes(content[:end])
        with pytest.raises(ValueError, match="to be a model that Marian saved"):
            from_marian(tmp_path / "model.npz", files)
    for end in range(0, len(pieces), 29):
        (tmp_path / "target.spm").write_bytes(pieces[:end])
        with pytest.raises(ValueError, match=r"to be a SentencePiece model|pieces, as the model has"):
            from_marian(model, [files[0], tmp_path / "target.spm"])


@pytest.mark.once
def test_the_names_of_nematus_and_of_older_versions_are_known(where, translators, tmp_path):
    """An output that is not transposed, biases of one axis, and what Nematus keeps beside the weights."""
    with np.load(where / "nematus.npz") as file:
        output, bias = file["decoder_ff_logit_l2_Wt"], file["decoder_b"]
    older = {"decoder_ff_logit_l2_Wt": None, "ff_logit_W": output.T, "decoder_b": bias[0], "uidx": np.ones(1, "int64")}
    path = rewritten(where / "nematus.npz", tmp_path / "model.npz", **older)
    translator = ka.Translator.from_marian(path, [where / file for file in vocabularies("nematus")])
    recorded = RECORDED["models"]["nematus"]["scores"]
    np.testing.assert_allclose(log_probs(translator.score(SOURCES, TARGETS)), recorded, atol=1e-4)


@pytest.mark.once
def test_pieces_of_another_program_are_not_exported(translators, tmp_path):
    pytest.importorskip("tensorflow_text")
    with pytest.raises(ValueError, match=r"can repeat.* a SentencePiece model of another program"):
        translators("pieces").export(tmp_path)
