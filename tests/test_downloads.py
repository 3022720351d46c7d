"""Downloads from a web server on this machine: interrupted, changed, missing, too large."""

import hashlib
import os

import pytest

from keras_attn.downloads import cache_folder, download
from tests.web_server import serving

pytestmark = pytest.mark.once

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def web():
    with serving({"model": CONTENT}) as server:
        yield server


def test_a_whole_file(web, tmp_path):
    for expected in ({}, {"size": len(CONTENT)}, {"sha256": SHA256}, {"sha256": SHA256, "size": len(CONTENT)}):
        path = download(f"{web.address}/model", tmp_path / "file", **expected)
        assert path.read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["file"]


def test_a_connection_that_breaks_is_continued(web, tmp_path):
    web.cuts = [1000, 70_000]
    assert download(f"{web.address}/model", tmp_path / "file", sha256=SHA256).read_bytes() == CONTENT
    assert web.requests == [("model", None), ("model", "bytes=1000-"), ("model", "bytes=71000-")]


def test_what_an_earlier_process_received_is_kept(web, tmp_path):
    web.cuts = [1000, 0]
    with pytest.raises(FileNotFoundError, match=r"Could not download .*/model \(it ended after 1,000 of 256,000 bytes"):
        download(f"{web.address}/model", tmp_path / "file", sha256=SHA256)
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:1000]
    assert download(f"{web.address}/model", tmp_path / "file", sha256=SHA256).read_bytes() == CONTENT
    assert web.requests[-1] == ("model", "bytes=1000-")
    assert os.listdir(tmp_path) == ["file"]


def test_a_server_without_ranges_begins_again(web, tmp_path):
    (tmp_path / "file.part").write_bytes(b"x" * 1000)
    web.knows_ranges = False
    assert download(f"{web.address}/model", tmp_path / "file", sha256=SHA256).read_bytes() == CONTENT


@pytest.mark.parametrize("begun", [b"x" * 1000, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 9)])
@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_the_beginning_of_another_file_is_given_up(web, tmp_path, begun, size):
    (tmp_path / "file.part").write_bytes(begun)
    assert download(f"{web.address}/model", tmp_path / "file", sha256=SHA256, size=size).read_bytes() == CONTENT


def test_a_file_that_is_whole_and_has_not_been_moved_is_not_asked_for(web, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT)
    download(f"{web.address}/model", tmp_path / "file", sha256=SHA256, size=len(CONTENT))
    assert web.requests == []


@pytest.mark.parametrize(
    ("content", "expected", "match"),
    [
        (
            CONTENT[:-1] + b"x",
            {"sha256": SHA256},
            f"SHA-256 {SHA256}. Received: [0-9a-f]{{64}}. What arrived was deleted",
        ),
        (CONTENT[:-1], {"size": len(CONTENT), "sha256": SHA256}, "256,000 bytes. Received: 255,999"),
        (CONTENT + b"x", {"size": len(CONTENT)}, "256,000 bytes. Received: more"),
        (CONTENT * 50, {"size": 10}, "10 bytes. Received: more"),
    ],
)
def test_a_changed_file_is_refused_and_deleted(web, tmp_path, content, expected, match):
    web.files["model"] = content
    with pytest.raises(ValueError, match=match):
        download(f"{web.address}/model", tmp_path / "file", **expected)
    assert os.listdir(tmp_path) == []


def test_no_more_is_read_than_the_file_may_have(web, tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr("keras_attn.downloads._fault", lambda part, *_: sizes.append(part.stat().st_size) or "nothing")
    with pytest.raises(ValueError, match="nothing"):
        download(f"{web.address}/model", tmp_path / "file", size=10)
    assert sizes == [1 << 16]


def test_a_missing_file_and_a_missing_server(web, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Could not download .*/nothing \(Not Found\)"):
        download(f"{web.address}/nothing", tmp_path / "file")
    with pytest.raises(FileNotFoundError, match="refused"):
        download("http://127.0.0.1:1/model", tmp_path / "file")
    with pytest.raises(ValueError, match="Expected an address of http, https, file"):
        download("ftp://127.0.0.1/model", tmp_path / "file")


def test_a_full_disk_is_no_failure_of_the_server(web, tmp_path):
    (tmp_path / "file.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="Expected room for what is written") as error:
        download(f"{web.address}/model", tmp_path / "file")
    assert not isinstance(error.value, FileNotFoundError)


def test_files_of_this_machine(tmp_path):
    (tmp_path / "a file").write_bytes(CONTENT)
    assert download((tmp_path / "a file").as_uri(), tmp_path / "copy", sha256=SHA256).read_bytes() == CONTENT


def test_the_cache_is_keras(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "keras_attn"
