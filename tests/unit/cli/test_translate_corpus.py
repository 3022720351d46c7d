"""`keras-attn translate-corpus`: the bytes of `translate`, also after kills; lines that fail are kept."""

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
from tests.unit.cli.conftest import tiny_translator

ROOT = Path(__file__).parents[3]
needs_ray = pytest.mark.skipif(
    not (is_installed("ray") and is_installed("pyarrow")), reason="needs Ray: pip install 'keras_attn[cluster]'"
)
OPTIONS = ["--window", "4", "--batch-size", "4", "--beam", "1"]
SECONDS = 600  # for what takes 20 on a quiet machine


def lines(rng, lengths):
    words = (rng.choice(["eins", "zwei", "drei", "vier"], length) for length in lengths)
    return b"".join(" ".join(line).encode() + b"\n" for line in words)


@pytest.fixture
def corpus(tmp_path, rng):
    """A folder with a `.gz` and a plain file, which has a blank line, bytes that are not text and no last line end."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt.gz").write_bytes(gzip.compress(lines(rng, [3 + row % 2 * 4 for row in range(18)])))
    (tmp_path / "in" / "b.txt").write_bytes(lines(rng, [3] * 5) + b"\n\xff vier\ndrei")
    return tmp_path / "in"


def check(out, corpus, preset, folder):
    """Compares each output with the bytes that `keras-attn translate` writes."""
    for path in corpus.iterdir():
        expected = folder / f"{path.name}.expected"
        assert translate.main([str(preset), str(path), "--output", str(expected), *OPTIONS]) == 0
        assert (out / path.name.removesuffix(".gz")).read_bytes() == expected.read_bytes()


def finished(out: Path) -> int:
    return len(list((out / translate_corpus.FOLDER).glob("blocks/*/*.output")))


@pytest.fixture
def here(monkeypatch):
    """The command with a worker in this process in the place of Ray's."""

    def translated(arguments, inputs, job):
        worker, folder = translate_corpus.BlockTranslator(arguments), arguments.output / translate_corpus.FOLDER
        translate_corpus._write(folder / "job", [job])
        *_, limits = translate_corpus._translation_options(arguments)
        for name, path in inputs.items():
            source = {"path": str(path), "blocks": str(folder / "blocks" / name)}
            for block in reversed(list(translate_corpus._blocks(limits, source))):
                done = worker(block)
                if done["error"]:
                    raise OSError(done.pop("error"))
                yield {name: count for name, count in done.items() if name != "error"}

    monkeypatch.setattr(translate_corpus, "require", lambda *names, purpose: None)
    monkeypatch.setattr(translate_corpus, "_translated_blocks", translated)
    return lambda *line: translate_corpus.main([*map(str, line)])


def test_an_interrupted_job_goes_on_to_the_bytes_of_one_machine(here, preset, corpus, tmp_path, capfd, monkeypatch):
    out, line = tmp_path / "out", (preset, "--input", corpus / "a*", corpus / "*", "--output", tmp_path / "out")
    whole, translated = translate_corpus.BlockTranslator._generate, []

    def counted(self, failures, texts, numbers):
        if len(translated) == 3:
            raise OSError("Expected room.")
        translated.append(texts)
        return whole(self, failures, texts, numbers)

    with monkeypatch.context() as patch:
        patch.setattr(translate_corpus.BlockTranslator, "_generate", counted)
        assert here(*line, *OPTIONS) == 1
    assert "Expected room." in capfd.readouterr().err
    assert finished(out) == 3
    assert here(*line, *OPTIONS, "--no-repeat", 2) == 2
    assert "Expected the options, models and files of the job that was begun" in capfd.readouterr().err
    kept = {path: path.stat().st_mtime_ns for path in out.glob(".translate-corpus/blocks/*/*.output")}
    joined = translate_corpus._join

    def checked(output, name):
        assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
        joined(output, name)

    monkeypatch.setattr(translate_corpus, "_join", checked)
    assert here(*line, *OPTIONS) == 0
    error = capfd.readouterr().err
    assert "Going on with the job" in error
    assert "1 of 8 lines of 'b.txt' contained bytes that are not UTF-8" in error
    assert sorted(path.name for path in out.iterdir()) == ["a.txt", "b.txt"]
    check(out, corpus, preset, tmp_path)
    assert here(*line, *OPTIONS) == 2
    assert "Expected an output folder without 'a.txt'" in capfd.readouterr().err


@pytest.mark.parametrize("moves", [3, 4])
def test_a_job_that_was_killed_between_two_joins_goes_on(here, preset, corpus, tmp_path, monkeypatch, moves):
    """Of files with names that the job's own folder has; the third is empty."""
    out, line = tmp_path / "out", (preset, "--input", corpus / "*", "--output", tmp_path / "out", *OPTIONS)
    (corpus / "blocks").write_bytes(b"")
    (corpus / "job.gz").write_bytes(gzip.compress(b"eins\n"))
    joined, replace = [], os.replace

    def killed(new, target):
        replace(new, target)
        joined.extend([target] if target.parent == out else [])
        if len(joined) == moves:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        assert here(*line) == 130
    assert here(*line) == 0
    assert sorted(path.name for path in out.iterdir()) == ["a.txt", "b.txt", "blocks", "job"]
    check(out, corpus, preset, tmp_path)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.failures"])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_file_that_came_after_a_job_began_is_not_overwritten(
    here, preset, corpus, tmp_path, capfd, monkeypatch, name, is_late
):
    out, line = tmp_path / "out", (preset, "--input", corpus / "*", "--output", tmp_path / "out", *OPTIONS)
    join = translate_corpus._join

    def interrupted(*_):
        raise KeyboardInterrupt

    def late(*arguments):
        (out / name).write_text("mine")
        join(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(translate_corpus, "_join", late if is_late else interrupted)
        assert here(*line) == (2 if is_late else 130)
    (out / name).write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(translate_corpus, "_translated_blocks", interrupted)  # refused before
        assert here(*line) == 2
    assert f"Expected an output folder without {name!r}" in capfd.readouterr().err
    assert (out / name).read_text() == "mine"
    (out / name).unlink()
    assert here(*line) == 0


def test_a_line_that_fails_is_empty_and_kept(here, corpus, tmp_path, capfd):
    """A source word whose embedding is NaN, in two lines of a block."""
    broken = tiny_translator(6)
    embedding = next(weight for weight in broken.model.weights if "source_embedding" in weight.path)
    values = keras.ops.convert_to_numpy(embedding).copy()
    values[broken.source_tokenizer.encode("eins")] = np.nan
    embedding.assign(values)
    broken.save_to_preset(tmp_path / "preset")
    (corpus / "b.txt").write_text("vier\nzwei eins\nzwei drei\neins\n")
    out = tmp_path / "out"
    assert here(tmp_path / "preset", "--input", corpus / "b*", "--output", out, *OPTIONS) == 0
    assert f"2 of 4 lines failed: see {str(out)!r}" in capfd.readouterr().err
    failures = [line.split("\t") for line in (out / "b.txt.failures").read_text().splitlines()]
    assert [number for number, _ in failures] == ["2", "4"]
    assert all("finite" in reason for _, reason in failures)
    one, other = Translator.from_preset(tmp_path / "preset").generate(["vier", "zwei drei"], beam_size=1)
    assert (out / "b.txt").read_text() == f"{one.text}\n\n{other.text}\n\n"


def test_a_name_like_a_glob_is_a_file_and_a_folder_has_one_job(here, preset, tmp_path, capfd):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "news[1].txt").write_text("eins\n")
    line = (preset, "--output", tmp_path / "out", *OPTIONS, "--input", tmp_path / "in" / "news[1].txt")
    with files.locked(tmp_path / "out"):
        assert here(*line) == 2
    assert "Expected no other process in" in capfd.readouterr().err
    job = tmp_path / "out" / translate_corpus.FOLDER / "job"
    job.parent.mkdir(parents=True)
    job.write_text("([], [])")
    assert here(*line) == 2
    assert "Expected a job of this version of keras_attn" in capfd.readouterr().err
    job.unlink()
    assert here(*line) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["news[1].txt"]


def test_without_ray_the_command_names_the_extra(monkeypatch, capfd):
    monkeypatch.setattr("keras_attn.requirements.is_installed", lambda name: name != "ray")
    assert translate_corpus.main(["runs/none", "--input", "*", "--output", "out"]) == 2
    assert 'pip install "keras_attn[cluster]"' in capfd.readouterr().err


def test_a_block_at_which_workers_die_ends_the_job(tmp_path):
    worker = translate_corpus.BlockTranslator.__new__(translate_corpus.BlockTranslator)
    worker.run, worker.max_characters, worker.options = "run", 9, {"batch_size": 2}
    block = {"path": str(tmp_path / "news.txt" / "00000001.output"), "first": 5, "text": b"w1\nw2"}
    (tmp_path / "news.txt").mkdir()
    (tmp_path / "news.txt" / "00000001.run").write_bytes(b"....")
    expected = "Expected workers that survive. Received: lines 5 to 6 of 'news.txt', at which 4 have died."
    assert worker(block)["error"] == expected


@needs_ray
@pytest.mark.parametrize(("address", "reason"), [("here", "invalid literal"), ("127.0.0.1:{port}", "refused")])
def test_a_missing_cluster_is_named(address, reason):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = address.format(port=closed.getsockname()[1])
        with pytest.raises(ConnectionError, match=f"Expected a Ray cluster at '{address}'. Received: .*{reason}"):
            translate_corpus._connected_ray(address)


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


@needs_ray
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the workers in /proc")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_ray_goes_on_after_a_killed_job_and_a_killed_worker(preset, corpus, tmp_path, rng):
    """With another number of workers. There are so many blocks that both are killed in the middle of the work."""
    blocks = 100
    (corpus / "a.txt.gz").write_bytes(gzip.compress(lines(rng, [6] * 4 * (blocks - 2))))
    out, said = tmp_path / "out", tmp_path / "stderr"
    line = [sys.executable, "-m", "keras_attn", "translate-corpus", preset, "--input", corpus / "*", "--output", out]

    def started(workers):
        with said.open("w") as stderr:
            command = [*line, *OPTIONS, "--workers", str(workers)]
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=stderr, stdout=stderr)

    def when(process, condition):
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    process = started(workers=1)
    try:
        when(process, lambda: finished(out))
        process.terminate()
        assert process.wait(timeout=SECONDS) == 143
        kept = "The finished blocks are kept: the same command goes on."
        assert said.read_text() == f"keras-attn translate-corpus: received SIGTERM. {kept}\n"
        before = finished(out)
        assert 0 < before < blocks
        process = started(workers=2)
        when(process, lambda: finished(out) > before and len(workers_of(process.pid)) == 2)
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        assert finished(out) < blocks
        assert process.wait(timeout=SECONDS) == 0, said.read_text()
        assert "Going on with the job" in said.read_text()
    finally:
        process.kill()
        process.wait()
    check(out, corpus, preset, tmp_path)
