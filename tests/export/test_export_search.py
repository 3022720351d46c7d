"""Any model's search as a SavedModel and in ONNX: the ids, scores and text of `generate`."""

import keras
import numpy as np
import pytest

from keras_attn.export import export_onnx, export_search
from keras_attn.runtime import OnnxSearch
from keras_attn.text import Tokenizer
from tests.contracts.model_rows import VT, inputs_of, make
from tests.export.small import NEEDS_TENSORFLOW, run
from tests.models.test_generate import WRONG_LIMITS, L
from tests.serving import loader

NAME = "attention, two memories"
OPTIONS = {"max_length": 6, "beam_size": 3, "min_length": 2, "banned_tokens": (4,)}
on_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason=NEEDS_TENSORFLOW)


@pytest.fixture(scope="module")
def model():
    return make(NAME)


@pytest.fixture(scope="module")
def tokenizer():
    made = Tokenizer.train([" ".join(f"w{i}" for i in range(VT - 4))], level="word")
    assert made.vocabulary_size == VT
    return made


def sources(model):
    """Three rows, and seven of other lengths."""
    source = model.source_of(inputs_of(NAME))
    return source, {name: np.concatenate([x, x[::-1], x[:1]])[:, :5] for name, x in source.items()}


def texts(tokenizer, found):
    pairs = zip(found.token_ids.reshape(-1, 6), found.lengths.reshape(-1), strict=True)
    return np.array([tokenizer.decode(ids[:n].tolist()) for ids, n in pairs]).reshape(found.lengths.shape)


@on_tensorflow
def test_the_graph_finds_what_generate_finds(model, tokenizer, tmp_path, program):
    few, many = sources(model)
    folder = export_search(model, tmp_path / "search", few, tokenizer=tokenizer, batch_size=4, **OPTIONS)
    assert folder.name == "1"
    assert {path.name for path in (folder / "assets.extra").iterdir()} == {"tf_serving_warmup_requests"}
    for source in (few, many):
        best, several = run(folder, [("serving_default", source), ("search_n_best", source)])
        one, found = (model.generate(source, n_best=n, **OPTIONS) for n in (1, 3))
        width = best["token_ids"].shape[1]
        np.testing.assert_array_equal(best["token_ids"], one.token_ids[:, 0, :width])
        np.testing.assert_allclose(best["score"], one.scores[:, 0], atol=1e-5)
        assert [text.decode() for text in best["text"]] == texts(tokenizer, one)[:, 0].tolist()
        width = several["token_ids"].shape[2]
        np.testing.assert_array_equal(several["token_ids"], found.token_ids[:, :, :width])
        np.testing.assert_allclose(several["scores"], found.scores, atol=1e-5)
        split = model.split_alignments(several["alignments"], [x.shape[-1] for x in found.alignments])
        for got, expected in zip(split, found.alignments, strict=True):
            np.testing.assert_allclose(got, expected[:, :, :width], atol=1e-5)
    arrays = [x.astype(dtype) for x, dtype in ((many["encoder_token_ids"], "int32"), (many["frames"], "float32"))]
    fed = [f"{x.ndim} {' '.join(map(str, x.shape))}\n".encode() + x.tobytes() for x in arrays]
    done, results = loader.run(program, folder, fed, "--signature", "serving_default")
    assert done.returncode == 0, done.stderr
    one = model.generate(many, **OPTIONS)
    assert [text.decode() for text in results["serving_default"]["text"]] == texts(tokenizer, one)[:, 0].tolist()


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="one of the two other backends starts a process, too")
def test_the_graphs_in_onnx_find_what_generate_finds(model, tmp_path):
    """On torch in a process of TensorFlow's, which loads the model."""
    pytest.importorskip("tf2onnx")
    few, many = sources(model)
    folder = export_onnx(model, tmp_path / "onnx", few)
    for source in (few, many):
        expected = model.generate(source, n_best=2, **OPTIONS)
        found = OnnxSearch(folder).generate(source, n_best=2, **OPTIONS)
        width = found.token_ids.shape[2]
        np.testing.assert_array_equal(found.token_ids, expected.token_ids[:, :, :width])
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
        for one, other in zip(found.alignments, expected.alignments, strict=True):
            np.testing.assert_allclose(one, other[:, :, :width], atol=1e-5)
    search, of_any_width = OnnxSearch(folder), OnnxSearch(folder)
    of_any_width._vocabulary_size = "V"  # as of a pointer's logits, whose width the graph does not know
    for wrong, sentence in WRONG_LIMITS:
        for one in (search, of_any_width):
            with pytest.raises(ValueError, match=sentence):
                one.generate(few, **{"max_length": L} | wrong)
    for ids, sentence in ((2**32 + 5, "of int32, from .* Received: 4294967301"), ("a", "of dtype int32. Received:")):
        with pytest.raises(ValueError, match=f"Expected encoder_token_ids {sentence}"):
            OnnxSearch(folder).generate({**few, "encoder_token_ids": [[ids]] * 3}, max_length=3)
    with pytest.raises(ValueError, match=r"Expected a source with encoder_token_ids\. Received: frames"):
        OnnxSearch(folder).generate({"frames": few["frames"]}, max_length=3)
    for frames in (few["frames"][..., :-1], few["frames"][0], few["frames"][:0], None):
        with pytest.raises(ValueError, match="Expected frames of shape"):
            OnnxSearch(folder).generate({**few, "frames": frames}, max_length=3)


@pytest.mark.parametrize(
    "wrong", [{"max_length": None}, {"max_length_ratio": 2.0}, {"jit_compile": True}], ids=["length", "ratio", "xla"]
)
def test_options_without_meaning_are_refused(model, tmp_path, wrong):
    with pytest.raises(ValueError, match="Expected `max_length`, and no ratios of lengths"):
        export_search(model, tmp_path, sources(model)[0], **OPTIONS | wrong)


@pytest.mark.parametrize(("wrong", "sentence"), [row for row in WRONG_LIMITS if "banned_tokens" in row[0]])
def test_banned_tokens_are_checked(model, tmp_path, wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        export_search(model, tmp_path, sources(model)[0], **OPTIONS | wrong)
