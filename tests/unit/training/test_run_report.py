"""report.json: the fields that commands read are checked."""

import json

import pytest

from keras_attn.training import export_arguments, length_penalty, read_report

WHOLE = {"corpus": "phrases", "source": "en", "target": "fr", "config": {"length_penalty": 0.5, "metric": "wer"}}


def test_a_whole_report_is_read(tmp_path):
    (tmp_path / "report.json").write_text(json.dumps(WHOLE))
    assert read_report(tmp_path) == WHOLE
    assert length_penalty(tmp_path, None) == 0.5
    assert length_penalty(tmp_path, 2.0) == 2.0


def test_a_preset_without_a_report_has_an_empty_one(tmp_path):
    assert read_report(tmp_path) == {"corpus": None, "source": None, "target": None, "config": {}}
    assert length_penalty(tmp_path, None) == 1.0
    (tmp_path / "translations.txt").write_bytes(b"source: a\xff b\n")
    assert export_arguments(tmp_path)["sentences"] == ["a\ufffd b"]


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff", b"[" * 100_000])
def test_a_damaged_report_is_refused(content, tmp_path):
    (tmp_path / "report.json").write_bytes(content)
    with pytest.raises(ValueError, match="It is truncated or changed"):
        read_report(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("corpus", 5),
        ("target", {}),
        ("from_preset", "first"),
        ("from_preset", {"name": "first", "digest": None}),
        ("tags", True),
        ("config", None),
        ("length_penalty", "1.0"),
        ("length_penalty", None),
        ("tokenize", 13),
    ],
)
def test_a_damaged_field_is_named(name, value, tmp_path):
    report = WHOLE | ({name: value} if name not in ("length_penalty", "tokenize") else {"config": {name: value}})
    (tmp_path / "report.json").write_text(json.dumps(report))
    with pytest.raises(ValueError, match=f"to be a run's report. Changed: {name}$"):
        length_penalty(tmp_path, None)
