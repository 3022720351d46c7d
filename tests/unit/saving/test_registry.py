"""Where a registered preset is found, and fetched from: a checkout, a mirror, the cache, an address."""

import json
import shutil
import threading
from pathlib import Path

import pytest

from keras_attn import files, saving
from keras_attn.saving import registry
from tests.web_server import serving

FILES = {"model.keras": b"m" * 3000, "source_tokenizer/tokenizer.json": b"{}", "translator.json": b'{"a": 1}'}
ENTRY = {
    **{"task": "translation", "source": "en", "target": "fr", "model": "RNNSearch", "parameters": 7},
    **{"dtype": "float16", "corpus": "phrases", "licence": "apache-2.0", "metric": "bleu"},
    **{"score": 12.5, "signature": "nrefs:1"},
}


def write(folder: Path) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def whole(tmp_path):
    """The preset's own folder, where nothing looks for it."""
    return write(tmp_path / "whole" / "tiny")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch, whole):
    """A registry with one preset and no address, an empty cache, no checkout."""
    path = tmp_path / "registry.json"
    path.write_text(json.dumps({"address": None, "presets": {"tiny": ENTRY | {"files": files.digests(whole)}}}))
    monkeypatch.setattr(registry, "REGISTRY", path)
    monkeypatch.setattr(registry, "CHECKOUT", tmp_path / "checkout")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(registry.VARIABLE, raising=False)


@pytest.fixture
def web(monkeypatch):
    with serving({f"presets/tiny/{name}": content for name, content in FILES.items()}) as server:
        monkeypatch.setenv(registry.VARIABLE, f"{server.address}/presets/")
        yield server


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cache(tmp_path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "home" / "keras_attn" / "presets").glob("*"))


def test_a_folder_is_taken_as_it_is_and_a_missing_preset_named(tmp_path, monkeypatch):
    assert saving.locate(Path("tiny")) == Path("tiny")
    assert saving.locate("runs/none") == Path("runs/none")
    with pytest.raises(FileNotFoundError, match=r"Expected a preset: one of tiny; hf://USER/NAME; or a folder"):
        saving.locate("tinny")
    with pytest.raises(ValueError, match=r"Expected a preset: a name, hf://USER/NAME, or a folder. Received: None"):
        saving.locate(None)
    with pytest.raises(FileNotFoundError, match="tiny to be installed: pip install keras-attn-presets"):
        saving.locate("tiny")
    monkeypatch.chdir(write(tmp_path / "here" / "other").parent)
    assert saving.locate("other") == Path("other")
    assert saving.locate("./tiny") == Path("tiny")


def test_a_mirror_comes_first_then_the_package_the_checkout_and_the_distribution(tmp_path, monkeypatch, whole):
    assert not saving.is_here("tiny")
    mirror = shutil.copytree(whole.parent, tmp_path / "mirror")
    monkeypatch.syspath_prepend(tmp_path / "site")
    distribution = shutil.copytree(whole.parent, tmp_path / "site" / registry.DISTRIBUTION)
    assert saving.locate("tiny") == distribution / "tiny"
    assert saving.is_here("tiny")
    checkout = shutil.copytree(whole.parent, tmp_path / "checkout")
    assert saving.locate("tiny") == checkout / "tiny"
    monkeypatch.setenv(registry.VARIABLE, str(mirror))
    assert saving.locate("tiny") == mirror / "tiny"
    shutil.rmtree(mirror / "tiny")  # a mirror may lack it
    assert saving.locate("tiny") == checkout / "tiny"
    monkeypatch.setattr(registry, "PACKAGED", shutil.copytree(whole.parent, tmp_path / "packaged"))
    assert saving.locate("tiny") == tmp_path / "packaged" / "tiny"


@pytest.mark.parametrize("damage", [None, b"m" * 2999, b"m" * 2999 + b"x"], ids=["missing", "truncated", "changed"])
def test_a_folder_with_other_files_than_the_registrys_is_refused(tmp_path, whole, damage):
    path = shutil.copytree(whole.parent, tmp_path / "checkout") / "tiny" / "model.keras"
    path.unlink() if damage is None else path.write_bytes(damage)
    with pytest.raises(ValueError, match=r"to be the preset of the registry. model.keras "):
        saving.locate("tiny")


def test_it_is_fetched_once(web, tmp_path, monkeypatch):
    folder = saving.locate("tiny")
    assert content(folder) == FILES
    assert len(web.requests) == len(FILES)
    assert cache(tmp_path) == [folder.name]
    (folder / "model.keras").write_bytes(b"m" * 2999 + b"x")  # damaged: fetched anew, from the registry's address
    monkeypatch.delenv(registry.VARIABLE)
    registry.REGISTRY.write_text(json.dumps(registry._read() | {"address": f"{web.address}/presets"}))
    assert saving.locate("tiny") == folder
    assert content(folder) == FILES
    web.files.clear()
    assert saving.locate("tiny") == folder


def test_an_interrupted_fetch_goes_on_with_the_missing_files(web):
    web.cuts = [None, 1]
    with pytest.raises(FileNotFoundError, match="Could not download"):
        saving.locate("tiny")
    assert content(saving.locate("tiny")) == FILES
    assert len(web.requests) == len(FILES) + 1


def test_a_changed_file_is_refused(web):
    web.files["presets/tiny/source_tokenizer/tokenizer.json"] = b"[]"
    with pytest.raises(ValueError, match=r"to have the SHA-256 .* What arrived was deleted"):
        saving.locate("tiny")


def test_two_at_once_fetch_it_once(web, tmp_path):
    """The second begins while the first waits for its first answer."""
    begun, found = threading.Event(), []
    second = threading.Thread(target=lambda: found.append(saving.locate("tiny")))

    def before_answer():
        if not begun.is_set():
            begun.set()
            second.start()
            second.join(0.3)  # it waits for the lock

    web.before_answer = before_answer
    found.append(saving.locate("tiny"))
    second.join(30)
    assert found[0] == found[1]
    assert content(found[0]) == FILES
    assert len(web.requests) == len(FILES)
    assert cache(tmp_path) == [found[0].name]


def test_entries_are_added_in_the_order_of_the_names(whole):
    entry = saving.PresetEntry(**ENTRY, files=files.digests(whole))
    saving.add_preset("a_first", entry)
    assert list(saving.presets()) == ["a_first", "tiny"]
    assert saving.presets()["a_first"] == entry == saving.presets()["tiny"]
    assert entry.size == sum(map(len, FILES.values()))
