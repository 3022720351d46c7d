"""Presets of hf://: a stand-in for the Hub on this machine, to which huggingface_hub itself speaks."""

import base64
import contextlib
import hashlib
import http.server
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keras_attn import saving
from tests.web_server import listening

constants = pytest.importorskip("huggingface_hub.constants")
pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
COMMIT = "a" * 40
FILES = {
    "model.keras": b"m" * 300,
    "translator.json": b"{}",
    "source_tokenizer/tokenizer.json": b"{}",
    "README.md": b"# card",
    "other.bin": b"not ours",
}


class Hub:
    """Repositories by their names, and what was asked."""

    def __init__(self):
        self.repositories = {"user/tiny": dict(FILES)}
        self.requests, self.created, self.tokens = [], [], set()
        self.address = ""


@contextlib.contextmanager
def serving():
    hub = Hub()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, content=b"", status=200, **headers):
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def do_GET(self):
            path = self.path.split("?")[0].strip("/")
            hub.requests.append(path)
            parts = path.removeprefix("api/models/").split("/")
            repository = hub.repositories.get("/".join(parts[:2]))
            if repository is None:
                self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
            elif path.startswith("api/") and parts[2:3] == ["tree"]:
                self.answer(
                    [{"type": "file", "path": n, "size": len(c), "oid": digest(c)} for n, c in repository.items()]
                )
            elif path.startswith("api/"):
                siblings = [{"rfilename": name} for name in repository]
                self.answer({"id": "/".join(parts[:2]), "sha": COMMIT, "siblings": siblings})
            else:  # USER/NAME/resolve/COMMIT/FILE
                content = repository["/".join(parts[4:])]
                self.answer(content, X_Repo_Commit=COMMIT, ETag=f'"{digest(content)}"')

        do_HEAD = do_GET

        def do_POST(self):
            path = self.path.split("?")[0].strip("/")
            hub.requests.append(path)
            hub.tokens.add(self.headers.get("Authorization"))
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if path == "api/repos/create":
                asked = json.loads(body)
                hub.created.append(asked)
                name = f"{asked['organization']}/{asked['name']}"
                hub.repositories.setdefault(name, {})
                self.answer({"url": f"{hub.address}/{name}", "id": name, "name": name})
            elif "/preupload/" in path:
                files = [{"path": one["path"], "uploadMode": "regular"} for one in json.loads(body)["files"]]
                self.answer({"files": [one | {"shouldIgnore": False, "oid": None} for one in files]})
            elif "/commit/" in path:
                name = "/".join(path.removeprefix("api/models/").split("/")[:2])
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        hub.repositories[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                address = f"{hub.address}/{name}/commit/{COMMIT}"
                self.answer({"success": True, "commitOid": COMMIT, "commitUrl": address, "hookOutput": ""})
            else:  # validation of the card
                self.answer({"errors": [], "warnings": []})

        def log_message(self, *_):
            pass

    with listening(Handler) as hub.address:
        yield hub


def digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "for_the_stand_in")
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server


def test_the_files_of_a_preset_are_downloaded_and_no_others(hub):
    folder = saving.locate("hf://user/tiny")
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == {name: content for name, content in FILES.items() if name != "other.bin"}


def test_without_the_network_it_is_taken_from_the_cache(hub, monkeypatch):
    folder = saving.locate("hf://user/tiny")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert saving.locate("hf://user/tiny") == folder
    with pytest.raises(FileNotFoundError, match=r"Could not download hf://user/other"):
        saving.locate("hf://user/other")


def test_a_revision_is_asked_for(hub):
    saving.locate(f"hf://user/tiny@{COMMIT}")
    assert any(path.endswith(f"revision/{COMMIT}") or f"resolve/{COMMIT}" in path for path in hub.requests)
    assert saving.locate("hf://user/tiny@v1").name == COMMIT
    assert any(path.endswith("revision/v1") for path in hub.requests)


def test_an_unknown_repository_is_a_sentence(hub):
    with pytest.raises(FileNotFoundError, match=r"Could not download hf://user/none \(.*404"):
        saving.locate("hf://user/none")


@pytest.mark.parametrize(
    "preset", ["hf://", "hf://user", "hf://user/a/b", "hf://../../x/y", "hf://user/tiny@", "hf://u/x y"]
)
def test_another_form_is_refused(preset):
    with pytest.raises(ValueError, match="Expected hf://USER/NAME or hf://USER/NAME@REVISION"):
        saving.locate(preset)


def test_a_preset_is_uploaded_with_its_card_and_nothing_else(hub, tmp_path):
    folder = tmp_path / "preset"
    for name, content in (FILES | {"report.json": b"{}", "checkpoint.npz": b"large"}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    address = saving.upload(folder, "hf://user/new", private=True)
    assert address == f"{hub.address}/user/new/commit/{COMMIT}"
    expected = {name for name in FILES if name != "other.bin"} | {"report.json"}
    assert hub.repositories["user/new"].keys() == expected
    assert "private" in (hub.created[0].get("visibility"), *hub.created[0])
    assert hub.tokens == {"Bearer for_the_stand_in"}


def test_a_failed_upload_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("HF_TOKEN", "for_the_stand_in")
    with pytest.raises(OSError, match=r"Could not upload hf://user/new"):
        saving.upload(tmp_path, "hf://user/new")


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for work in (lambda: saving.locate("hf://user/tiny"), lambda: saving.upload(Path("x"), "hf://user/tiny")):
        with pytest.raises(ModuleNotFoundError, match=r'huggingface_hub to be installed .*"keras_attn\[hub\]"'):
            work()


def test_finding_a_preset_imports_neither_keras_nor_the_hub():
    code = (
        "import sys, keras_attn; keras_attn.presets(); print('keras' in sys.modules, 'huggingface_hub' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "False False\n", done.stderr
