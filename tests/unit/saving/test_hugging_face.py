"""Presets of hf://: the calls of huggingface_hub, and its errors."""

import sys
from pathlib import Path
from unittest import mock

import pytest

from keras_attn import saving

huggingface_hub = pytest.importorskip("huggingface_hub")
OURS = ["model.keras", "translator.json", "source_tokenizer/tokenizer.json", "target_tokenizer/sentencepiece.model"]
OURS += ["README.md", "report.json"]


def chosen(patterns):
    """The files that the library takes of a repository with others."""
    return list(huggingface_hub.utils.filter_repo_objects([*OURS, "other.bin", "a/b"], allow_patterns=patterns))


@pytest.mark.parametrize(("preset", "revision"), [("hf://user/tiny", None), ("hf://user/tiny@v1", "v1")])
def test_the_files_of_a_preset_are_downloaded_and_no_others(monkeypatch, preset, revision):
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror")
    download = mock.create_autospec(huggingface_hub.snapshot_download, return_value="/folder")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert saving.locate(preset) == Path("/folder")
    (arguments, options) = download.call_args
    patterns = options.pop("allow_patterns")
    assert (arguments, options) == (("user/tiny",), {"revision": revision, "endpoint": "https://mirror"})
    assert chosen(patterns) == OURS


@pytest.mark.parametrize(
    "preset", ["hf://", "hf://user", "hf://user/a/b", "hf://../../x/y", "hf://user/tiny@", "hf://u/x y"]
)
def test_another_form_is_refused(preset):
    with pytest.raises(ValueError, match="Expected hf://USER/NAME or hf://USER/NAME@REVISION"):
        saving.locate(preset)


def test_a_preset_is_uploaded_with_its_card_and_nothing_else(monkeypatch, tmp_path):
    hub = mock.create_autospec(huggingface_hub.HfApi, instance=True)
    hub.upload_folder.return_value = mock.Mock(commit_url="https://there")
    made = mock.Mock(return_value=hub)
    monkeypatch.setattr(huggingface_hub, "HfApi", made)
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror")
    assert saving.upload(tmp_path, "hf://user/new@v1", private=True) == "https://there"
    made.assert_called_once_with(endpoint="https://mirror")
    hub.create_repo.assert_called_once_with("user/new", private=True, exist_ok=True)
    options = hub.upload_folder.call_args.kwargs
    assert chosen(options.pop("allow_patterns")) == OURS
    assert options == {"repo_id": "user/new", "folder_path": tmp_path, "revision": "v1"}


def test_failures_name_the_preset(tmp_path, monkeypatch):
    """Of the library itself, which looks into its cache when nobody answers."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("HF_TOKEN", "a_token")
    with pytest.raises(FileNotFoundError, match=r"Could not download hf://user/none \("):
        saving.locate("hf://user/none")
    with pytest.raises(OSError, match=r"Could not upload hf://user/new"):
        saving.upload(tmp_path, "hf://user/new")


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for work in (lambda: saving.locate("hf://user/tiny"), lambda: saving.upload(Path("x"), "hf://user/tiny")):
        with pytest.raises(ModuleNotFoundError, match=r'huggingface_hub to be installed .*"keras_attn\[hub\]"'):
            work()
