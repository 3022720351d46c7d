"""`keras-attn translate-corpus`: the bytes of `translate`, whatever is killed; lines that fail are kept."""

import gzip
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn import files
from keras_attn.cli import translate, translate_corpus
from keras_attn.requirements import is_installed
from keras_attn.translation import Translator
from tests.tiny import translator

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
HAS_RAY = is_installed("ray") and is_installed("pyarrow")
NAN_WORD = "w1"
KEPT = "The finished blocks are kept: the same command goes on."
SECONDS = 600  # for what takes 20 on a quiet machine


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets") / "tiny"
    translator().save_to_preset(folder)
    return folder


@pytest.fixture
def corpus(tmp_path, rng):
    return written(tmp_path / "in", rng, [3 + row % 2 * 4 for row in range(18)])


def written(folder, rng, lengths):
    """A folder with a `.gz` and a plain file, which has a blank line, bytes that are not text and no last line end."""
    folder.mkdir()

    def lines(lengths):
        words = (rng.integers(2, 40, length) for length in lengths)
        return b"".join(" ".join(f"w{word}" for word in some).encode() + b"\n" for some in words)

    with gzip.open(folder / "a.txt.gz", "wb") as file:
        file.write(lines(lengths))
    (folder / "b.txt").write_bytes(lines([3] * 5) + b"\n\xff w7\nw9")
    return folder


def one_machine(preset, path, output, *options):
    """The bytes that `keras-attn translate` writes."""
    assert translate.main([str(preset), "--input", str(path), "--output", str(output), *options]) == 0
    return output.read_bytes()


OPTIONS = ["--window", "4", "--batch-size", "4", "--beam", "1"]


@pytest.fixture
def here(monkeypatch):
    """The command with a worker in this process in the place of Ray's."""

    def translated(arguments, inputs, job):
        worker, folder = translate_corpus.BlockTranslator(arguments), arguments.output / translate_corpus.FOLDER
        translate_corpus._write(folder / "job", [job])
        *_, limits = translate_corpus._translation_options(arguments)
        for name, path in inputs.items():
            source = {"path": str(path), "blocks": str(folder / name)}
            for block in reversed(list(translate_corpus._blocks(limits, source))):
                done = worker(block)
                if done["error"]:
                    raise OSError(done.pop("error"))
                yield {name: count for name, count in done.items() if name != "error"}

    monkeypatch.setattr(translate_corpus, "require", lambda *names, purpose: None)
    monkeypatch.setattr(translate_corpus, "_translated_blocks", translated)
    return lambda *line: translate_corpus.main([*map(str, line)])


@pytest.mark.not_once
def test_the_bytes_of_one_machine(here, preset, corpus, tmp_path, capfd, backend):
    # On TensorFlow the last digits depend on the shapes that were traced before.
    form = ["--format", "jsonl", "--fields", "text,tokens" if backend == "tensorflow" else "text,score,alignment"]
    out = tmp_path / "out"
    assert here(preset, "--input", corpus / "a*", corpus / "*", "--output", out, *OPTIONS, *form) == 0
    assert "1 of 26 lines contained bytes that are not UTF-8" in capfd.readouterr().err
    assert sorted(path.name for path in out.iterdir()) == ["a.txt", "b.txt"]
    for path in corpus.iterdir():
        expected = one_machine(preset, path, tmp_path / path.name, *OPTIONS, *form)
        assert (out / path.name.removesuffix(".gz")).read_bytes() == expected
        assert len(set(expected.splitlines())) > 4


def test_a_line_that_fails_is_empty_and_kept(here, corpus, tmp_path, capfd):
    """A source word whose embedding is NaN, in two lines of a block."""
    broken = translator()
    embedding = next(weight for weight in broken.model.weights if "source_embedding" in weight.path)
    values = keras.ops.convert_to_numpy(embedding).copy()
    values[broken.source_tokenizer.encode(NAN_WORD)] = np.nan
    embedding.assign(values)
    broken.save_to_preset(tmp_path / "preset")
    with (corpus / "b.txt").open("ab") as file:
        file.write(f"\nw2 {NAN_WORD}\nw2 w3\n{NAN_WORD}\n".encode())
    out = tmp_path / "out"
    assert here(tmp_path / "preset", "--input", corpus / "b*", "--output", out, *OPTIONS) == 0
    assert f"2 of 11 lines failed: see {str(out)!r}" in capfd.readouterr().err
    failures = [line.split("\t") for line in (out / "b.txt.failures").read_text().splitlines()]
    assert [number for number, _ in failures] == ["9", "11"]
    assert all("finite" in reason for _, reason in failures)
    expected = [line.text for line in Translator.from_preset(tmp_path / "preset").generate(["w2 w3"], beam_size=1)]
    lines = (out / "b.txt").read_text().split("\n")
    assert lines[8:] == ["", *expected, "", ""]


def test_only_the_job_itself_goes_on(here, preset, corpus, tmp_path, capfd, monkeypatch):
    out, line = tmp_path / "out", (preset, "--input", corpus / "*", "--output", tmp_path / "out", *OPTIONS)
    whole, translated = translate_corpus.BlockTranslator._generate, []

    def counted(self, failures, texts, numbers):
        if len(translated) == 3:
            raise OSError("Expected room.")
        translated.append(texts)
        return whole(self, failures, texts, numbers)

    with monkeypatch.context() as patch:
        patch.setattr(translate_corpus.BlockTranslator, "_generate", counted)
        assert here(*line) == 1
    assert "Expected room." in capfd.readouterr().err
    assert finished(out) == 3
    assert here(*line, "--no-repeat", 2) == 2
    assert "Expected the options, models and files of the job that was begun" in capfd.readouterr().err
    kept = {path: path.stat().st_mtime_ns for path in out.glob(".translate-corpus/*/*.output")}
    joined = translate_corpus._join

    def checked(blocks, output):
        assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
        joined(blocks, output)

    monkeypatch.setattr(translate_corpus, "_join", checked)
    assert here(*line) == 0
    assert "Going on with the job" in capfd.readouterr().err
    for path in corpus.iterdir():
        expected = one_machine(preset, path, tmp_path / path.name, *OPTIONS)
        assert (out / path.name.removesuffix(".gz")).read_bytes() == expected
    assert here(*line) == 2
    assert "Expected an output folder without 'a.txt'" in capfd.readouterr().err


def test_a_name_with_the_characters_of_a_glob_is_a_file(here, preset, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "news[1].txt").write_text("w1\nw2\n")
    assert here(preset, "--output", tmp_path / "out", *OPTIONS, "--input", tmp_path / "in" / "news[1].txt") == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["news[1].txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "{tmp}/none*"], "which matches none"),
        (["--input", "{tmp}/in/*", "{tmp}/more/*"], "names of their own"),
        (["--input", "{tmp}/bad.gz"], "to be a whole gzip file"),
        (["--input", "{tmp}/in/*", "--output", "{tmp}/in"], "an output folder without 'b.txt'"),
        (["--input", "{tmp}/in/*", "--output", "{tmp}/in/b.txt"], "Expected a folder"),
        (["--input", "{tmp}/in/*", "--format", "tsv", "--fields", "text"], "--format jsonl"),
        (["--input", "{tmp}/in/*", "--beam", "2", "--n-best", "3"], "n_best to be at most beam_size=2"),
        (["--input", "{tmp}/in/*", "--workers", "0"], "--workers: expected a whole number"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(here, preset, corpus, tmp_path, capfd, arguments, message):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("w1")
    (tmp_path / "bad.gz").write_bytes(gzip.compress(b"w1\n" * 1000)[:-9])
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    line = [preset, "--output", tmp_path / "out", *OPTIONS, *arguments]
    try:
        status = here(*line)
    except SystemExit as ended:  # argparse's own
        status = ended.code
    error = capfd.readouterr().err
    assert (status, error.count("\n")) == (2, 1), error
    assert message in error
    assert not (tmp_path / "out").exists()
    assert sorted(path.name for path in corpus.iterdir()) == ["a.txt.gz", "b.txt"]


def test_an_output_folder_has_one_job_at_a_time(here, preset, corpus, tmp_path, capfd):
    with files.locked(tmp_path / "out"):
        assert here(preset, "--input", corpus / "*", "--output", tmp_path / "out") == 2
    assert "Expected no other process in" in capfd.readouterr().err


@pytest.mark.skipif(not HAS_RAY, reason="needs Ray: pip install 'keras_attn[cluster]'")
@pytest.mark.parametrize(("address", "reason"), [("here", "invalid literal"), ("127.0.0.1:{port}", "refused")])
def test_no_cluster_is_a_sentence(address, reason):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = address.format(port=closed.getsockname()[1])
        with pytest.raises(ConnectionError, match=f"Expected a Ray cluster at '{address}'. Received: .*{reason}"):
            translate_corpus._connected_ray(address)


def test_without_ray_the_command_says_what_to_install(monkeypatch, capfd):
    monkeypatch.setattr("keras_attn.requirements.is_installed", lambda name: name != "ray")
    assert translate_corpus.main(["runs/none", "--input", "*", "--output", "out"]) == 2
    assert 'pip install "keras_attn[cluster]"' in capfd.readouterr().err


def workers_of(process: int) -> list[int]:
    """The processes of Ray's workers among the descendants of a process."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            names[int(folder.name)] = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue

    def descends(one):
        while one in parents and one != process:
            one = parents[one]
        return one == process

    return [one for one, name in names.items() if name.startswith(b"ray::MapWorker") and descends(one)]


def finished(out: Path) -> int:
    return len(list((out / translate_corpus.FOLDER).glob("*/*.output")))


@pytest.mark.not_once
@pytest.mark.slow
@pytest.mark.skipif(not HAS_RAY, reason="needs Ray: pip install 'keras_attn[cluster]'")
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="Ray is the same on each backend: one of them is enough")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the workers in /proc")
def test_the_same_bytes_though_the_job_and_a_worker_are_killed(preset, tmp_path, rng):
    corpus = written(tmp_path / "in", rng, [1 + 4 * (row // 4) for row in range(26)])  # each block compiles anew
    out = tmp_path / "out"
    line = [sys.executable, "-m", "keras_attn", "translate-corpus", preset, "--input", corpus / "*", "--output", out]
    line += [*OPTIONS, "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "jax"}
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")

    said = tmp_path / "stderr"

    def started():
        with said.open("w") as stderr:
            return subprocess.Popen(line, cwd=ROOT, env=environment, stderr=stderr, stdout=stderr)

    def when(process, condition):
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    process = started()
    try:
        when(process, lambda: finished(out))
        process.terminate()
        assert process.wait(timeout=SECONDS) == 143
        assert said.read_text() == f"keras-attn translate-corpus: received SIGTERM. {KEPT}\n"
        before = finished(out)
        process = started()
        when(process, lambda: finished(out) > before)
        process.kill()
        process.wait()
        assert 0 < finished(out) < 9
        process = started()
        when(process, lambda: len(workers_of(process.pid)) == 2)
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        assert finished(out) < 9
        assert process.wait(timeout=SECONDS) == 0, said.read_text()
        assert "Going on with the job" in said.read_text()
    finally:
        process.kill()
        process.wait()
    for path in corpus.iterdir():
        expected = one_machine(preset, path, tmp_path / path.name, *OPTIONS)
        assert (out / path.name.removesuffix(".gz")).read_bytes() == expected


def test_a_block_at_which_workers_die_ends_the_job(tmp_path):
    worker = translate_corpus.BlockTranslator.__new__(translate_corpus.BlockTranslator)
    worker.run, worker.max_characters, worker.options = "run", 9, {"batch_size": 2}
    block = {"path": str(tmp_path / "news.txt" / "00000001.output"), "first": 5, "text": b"w1\nw2"}
    (tmp_path / "news.txt").mkdir()
    (tmp_path / "news.txt" / "00000001.run").write_bytes(b"....")
    expected = "Expected workers that survive. Received: lines 5 to 6 of 'news.txt', at which 4 have died."
    assert worker(block)["error"] == expected
