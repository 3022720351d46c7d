"""A published version gives what `generate` gives; its files and its record."""

import json
import re
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_attn.cli.main import main
from keras_attn.export import export_translator
from tests.export.small import LINES, NEEDS_TENSORFLOW, READ, SENTENCES, build, run

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason=NEEDS_TENSORFLOW)
REPORT = {"recipe": "rnnsearch", "source": "de", "target": "fr", "bleu": {"score": 12.5, "signature": "s"}, "x": 1}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A translator, which is exported once for all tests."""
    import tensorflow as tf

    translator, root = build("bpe"), tmp_path_factory.mktemp("saved_models") / "bpe"
    optimizer = tf.config.optimizer.get_experimental_options()
    folder = export_translator(translator, root, beam_size=3, sentences=SENTENCES, report=REPORT)
    assert optimizer == tf.config.optimizer.get_experimental_options(), "the check disables it for itself alone"
    return SimpleNamespace(translator=translator, root=root, folder=folder)


def test_a_loaded_version_gives_the_same(exported):
    """Another string only if both have the same score. Without Keras, too: test_every_model.py has the C program."""
    expected = exported.translator.generate(READ, beam_size=3, return_alignments=False)
    texts, lengths = ({each(t) for t in expected} for each in (lambda t: t.text, lambda t: len(t.tokens)))
    assert (len(texts) > len(LINES) // 2, len(lengths) > 5) == (True, True), "translations worth comparing"
    assert any(len(translation.source_tokens) > 64 for translation in expected)
    batches = [LINES, *([line] for line in LINES[:3] + LINES[16:18]), LINES[16:19], []]
    answers = run(exported.folder, [("serving_default", {"text": batch}) for batch in batches])
    everything, *single, blank, empty = [(a["translation"].tolist(), a["score"].tolist()) for a in answers]
    for line, one, found, score in zip(READ, expected, *everything, strict=True):
        assert abs(one.score - score) < 2e-5 * (1 + abs(score)), line
        if found.decode() != one.text:
            assert abs(one.score - score) < 1e-5, (line, one.text, found)
    texts = everything[0]
    assert [text for (text,), _ in single] == texts[:3] + texts[16:18]
    assert blank == ([b"", b"", b""], [0.0, 0.0, 0.0])
    assert empty == ([], [])


def test_a_command_translates_with_it(exported, tmp_path, capsys):
    (tmp_path / "text").write_bytes(b"".join(line.encode() + b"\n" for line in SENTENCES))
    expected = exported.translator.generate(SENTENCES, beam_size=3, n_best=3)
    given = [str(exported.root), str(tmp_path / "text")]
    assert main(["translate", *given]) == 0
    lines = capsys.readouterr().out.split("\n")[:-1]
    assert lines == [re.sub("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", " ", one.text) for one in expected]
    assert main(["translate", str(exported.folder), given[1], "--format", "jsonl", "--fields", "text,alignment"]) == 0
    for line, one in zip(capsys.readouterr().out.splitlines(), expected, strict=True):
        found = json.loads(line)["translations"]
        assert [other["text"] for other in found] == [other.text for other in one.n_best]
        np.testing.assert_allclose(found[0]["alignment"], one.alignment, atol=1e-4)
    for options, sentence in ((["--n-best", "2"], "has its own. Received: --n-best"), (["--html", "x"], "Received: a")):
        assert main(["translate", *given, *options]) == 2
        assert sentence in capsys.readouterr().err


def test_the_folder_holds_the_weights_once_and_a_record_of_options_and_origin(exported):
    weights = (exported.folder / "variables" / "variables.data-00000-of-00001").stat().st_size
    assert weights < 1.2 * 4 * exported.translator.model.count_params() + 2**14
    names = sorted(path.name for path in exported.root.iterdir())
    assert names == ["1"], "nothing may be left beside it"
    assert "max_batch_size { value: 64 }" in (exported.folder / "batching_params.pbtxt").read_text()
    record = json.loads((exported.folder / "assets.extra" / "keras_attn.json").read_text())
    assert record["options"]["beam_size"] == 3
    assert record["languages"] == {"source": "de", "target": "fr"}
    assert (record["run"], record["scores"]) == ({"recipe": "rnnsearch"}, {"bleu": REPORT["bleu"]})
    ids = {"pad": 0, "unknown": 1, "start": 2, "end": 3}
    assert [record["tokenizers"][side]["special_ids"] for side in ("source", "target")] == [ids, ids]
    assert record["trained_length"] == exported.translator.trained_length


def test_warm_up_records_are_tensorflow_servings(exported):
    """Read by the package whose format it is."""
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    import tensorflow as tf

    path = exported.folder / "assets.extra" / "tf_serving_warmup_requests"
    calls = []
    for record in tf.data.TFRecordDataset(str(path)):
        request = logs.PredictionLog.FromString(record.numpy()).predict_log.request
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        calls.append((request.model_spec.signature_name, inputs))
    assert {name for name, _ in calls} == set(tf.saved_model.load(str(exported.folder)).signatures)
    batches = [[text.decode() for text in inputs["text"]] for name, inputs in calls if name == "serving_default"]
    assert [len(batch) for batch in batches] == [1, 1, 8, 32]
    assert {text for batch in batches for text in batch} == set(SENTENCES)
    (ids,) = (inputs for name, inputs in calls if name == "translate_token_ids")
    assert ids["token_ids"].shape == (1, ids["lengths"][0])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("a full disk", r"Expected a version that can .*No space left on device"),
        ("a wrong score", "Expected the exported"),
    ],
)
def test_a_version_that_is_not_whole_or_not_right_leaves_nothing(exported, tmp_path, monkeypatch, error, expected):
    import tensorflow as tf

    from keras_attn.export import assets, signatures

    class Wrong:
        """A graph in the place of the translator's."""

        def __init__(self, *_):
            pass

        def save(self, directory):
            def translate(text):
                return {"translation": text, "score": tf.cast(tf.strings.length(text), tf.float32)}

            spec = tf.TensorSpec((None,), tf.string, name="text")
            tf.saved_model.save(tf.Module(), directory, signatures=tf.function(translate, input_signature=[spec]))
            if error == "a full disk":
                raise tf.errors.ResourceExhaustedError(None, None, f"{directory}/variables; No space left on device")

    monkeypatch.setattr(signatures, "ServedTranslator", Wrong)
    monkeypatch.setattr(assets, "warm_up_requests", lambda *_: [])
    with pytest.raises((OSError, ValueError), match=expected):
        export_translator(exported.translator, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
