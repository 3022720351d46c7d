"""Downloads from a web server on this machine: broken off, changed, missing, too large."""

import hashlib
import os

import pytest

from keras_attn.downloads import download
from tests.unit.test_files import full_disk
from tests.web_server import serving

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


@pytest.mark.parametrize(
    ("content", "expected", "match"),
    [
        (CONTENT[:-1] + b"x", {"sha256": SHA256}, f"SHA-256 {SHA256}. What arrived was deleted"),
        (CONTENT[:-1], {"size": len(CONTENT), "sha256": SHA256}, "256,000 bytes. Received: 255,999"),
        (bytes(99 << 20), {"size": len(CONTENT)}, "256,000 bytes. Received: more"),
    ],
    ids=["changed", "shorter", "longer"],  # of the contents, names would have megabytes
)
def test_a_changed_file_is_refused_and_deleted(web, tmp_path, content, expected, match):
    web.files["model"] = content
    with pytest.raises(ValueError, match=match):
        download(f"{web.address}/model", tmp_path / "file", **expected)
    assert os.listdir(tmp_path) == []


def test_failed_downloads_leave_nothing(web, tmp_path):
    web.cuts = [1000]
    with pytest.raises(FileNotFoundError, match=r"Could not download .*/model \(.*1000 bytes read"):
        download(f"{web.address}/model", tmp_path / "file", sha256=SHA256)
    with pytest.raises(FileNotFoundError, match=r"Could not download .*/nothing \(404 "):
        download(f"{web.address}/nothing", tmp_path / "file")
    with pytest.raises(FileNotFoundError, match="refused"):
        download("http://127.0.0.1:1/model", tmp_path / "file")
    with pytest.raises(ValueError, match="Expected an address of http, https, file"):
        download("ftp://127.0.0.1/model", tmp_path / "file")
    assert os.listdir(tmp_path) == []


def test_files_of_this_machine(tmp_path):
    (tmp_path / "a file").write_bytes(CONTENT)
    with full_disk(), pytest.raises(OSError, match="Expected room for what is written"):
        download((tmp_path / "a file").as_uri(), tmp_path / "copy")
    assert os.listdir(tmp_path) == ["a file"]
    with pytest.raises(FileNotFoundError, match=r"Could not download .*No such file"):
        download((tmp_path / "none").as_uri(), tmp_path / "copy")
    assert download((tmp_path / "a file").as_uri(), tmp_path / "copy", sha256=SHA256).read_bytes() == CONTENT
