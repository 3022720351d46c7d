"""An exported translator says what `generate` says, in a process with TensorFlow alone and without Python."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_attn.serving import examples
from tests.serving.conftest import LINES, READ

C_SOURCE = Path(__file__).with_name("run_saved_model.c")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}


def assert_same(exported, translations, scores):
    """The strings of `generate`; others only where a hypothesis of the same score changed places with it."""
    for line, expected, found, score in zip(READ, exported.found, translations, scores, strict=True):
        assert abs(expected.score - score) < 2e-5 * (1 + abs(score)), line
        if found.decode() != expected.text:
            assert abs(expected.score - score) < 1e-5, (line, expected.text, found)
            print(f"a tie: {line!r} gives {found!r} for {expected.text!r}, both {score}")


def test_the_model_is_worth_comparing(exported):
    texts = [translation.text for translation in exported.found]
    assert len(set(texts)) > len(texts) // 2
    assert len({len(translation.tokens) for translation in exported.found}) > 5
    assert any(len(translation.source_tokens) > 64 for translation in exported.found)


def test_a_process_with_tensorflow_alone_says_the_same(exported):
    batches = [LINES, *([line] for line in LINES[:3] + LINES[16:18]), LINES[16:19], []]
    done = subprocess.run(
        [sys.executable, "-P", examples.REPLAY, exported.folder],
        input=json.dumps([[line.hex() for line in batch] for batch in batches]),
        capture_output=True,
        text=True,
        env=os.environ | QUIET,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    everything, *single, blank, empty = [
        ([bytes.fromhex(text) for text in batch["translation"]], batch["score"]) for batch in answer["batches"]
    ]
    assert_same(exported, *everything)
    texts = everything[0]
    assert [text for (text,), _ in single] == texts[:3] + texts[16:18]
    assert blank == ([b"", b"", b""], [0.0, 0.0, 0.0])
    assert empty == ([], [])
    print("load", answer["load_seconds"], "runs", [batch["seconds"] for batch in answer["batches"]])


@pytest.fixture(scope="session")
def loader(tmp_path_factory):
    """The C program and the options that load tensorflow-text's ops into it."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not here to build the C program")
    spec = importlib.util.find_spec("tensorflow")
    wheel = Path(spec.submodule_search_locations[0])
    program = tmp_path_factory.mktemp("loader") / "run_saved_model"
    libraries = [wheel / "libtensorflow_cc.so.2", wheel / "libtensorflow_framework.so.2"]
    gcc = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{wheel / 'include'}"]
    built = subprocess.run(
        [*gcc, C_SOURCE, "-o", program, *libraries, f"-Wl,-rpath,{wheel}"],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    text_ops = sorted((wheel.parent / "tensorflow_text" / "python" / "ops").glob("*.so"))
    assert text_ops
    return program, [word for path in text_ops for word in ("--library", path)]


def run_loader(loader, folder, texts, *options):
    """`{signature: {output: values}}`, and what was said on stderr."""
    program, libraries = loader
    frames = b"".join(b"%d\n%b\n" % (len(text), text) for text in texts)
    command = [program, folder, "--without-xla", *libraries, *options]
    done = subprocess.run(command, input=frames, capture_output=True, env=os.environ | QUIET)
    return done, parse(done.stdout)


def parse(stdout: bytes) -> dict:
    results, at = {}, 0

    def line():
        nonlocal at
        end = stdout.index(b"\n", at)
        at, words = end + 1, stdout[at:end]
        return words.decode()

    while at < len(stdout):
        kind, name, *rest = line().split()
        if kind == "signature":
            outputs = results[name] = {}
            continue
        type_, rank, *shape = map(int, rest)
        count = 1
        for size in shape:
            count *= size
        assert kind == "output"
        assert rank == len(shape)
        values = []
        for _ in range(count):
            values.append(float(line()))
            if type_ == 7:  # a string
                length = int(values.pop())
                values.append(stdout[at : at + length])
                at += length + 1
        outputs[name] = np.array(values, object if type_ == 7 else float).reshape(shape)
    return results


def test_the_servers_own_loader_says_the_same(exported, loader):
    done, results = run_loader(loader, exported.folder, LINES, "--repeat", "2")
    assert done.returncode == 0, done.stderr.decode()
    # Those with string inputs; what has a default need not be fed.
    assert sorted(results) == ["score", "serving_default", "translate", "translate_n_best", "translate_with_options"]
    for name in ("serving_default", "translate", "translate_with_options"):
        assert_same(exported, results[name]["translation"], results[name]["score"])
    best = results["translate_n_best"]
    assert_same(exported, best["translations"][:, 0], best["scores"][:, 0])
    assert best["alignments"].shape == (len(LINES), 3, best["target_tokens"].shape[2], best["source_tokens"].shape[1])
    np.testing.assert_allclose(best["alignments"].sum(-1).sum(-1), best["target_lengths"], rtol=1e-4)
    given = exported.translator.score(READ[:-1:2], READ[1::2])
    log_probs = [t.token_log_probs.sum() if t.token_ids else 0.0 for t in given]
    np.testing.assert_allclose(results["score"]["log_prob"], log_probs, rtol=1e-4)
    print(*[line for line in done.stderr.decode().splitlines() if line.startswith(("load ", "run "))])


def test_the_loader_refuses_what_it_cannot_run(exported, loader, tmp_path):
    for folder, options in (
        (tmp_path, ()),
        (exported.folder, ("--signature", "other")),
        (exported.folder, ("-x",)),
    ):
        done, _ = run_loader(loader, folder, LINES[:1], *options)
        assert done.returncode == 1
        assert done.stderr.decode().splitlines()[-1].startswith("run_saved_model: ")


def test_the_folder_holds_the_weights_once_and_a_record(exported):
    weights = (exported.folder / "variables" / "variables.data-00000-of-00001").stat().st_size
    assert weights < 1.2 * 4 * exported.translator.model.count_params() + 2**14
    record = json.loads((exported.folder / "assets.extra" / "keras_attn.json").read_text())
    assert record["options"]["beam_size"] == 3
    assert sorted(record["signatures"]["serving_default"]["outputs"]) == ["score", "translation"]
    names = sorted(path.name for path in exported.root.iterdir())
    assert names == ["1", "README.md", "models.config"], "nothing may be left beside it"
