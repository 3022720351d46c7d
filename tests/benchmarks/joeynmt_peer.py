"""The peer: JoeyNMT 2.3 translates the same sentences with the same weights, in an environment of its own.

    python -m tests.benchmarks.joeynmt_peer WORK --data DIR --preset RUN [--batch-size 128]

RUN is a trained preset of `tests.benchmarks.joeynmt_sizes`. WORK/venv gets JoeyNMT and torch from the package index,
once. The preset's weights and vocabularies are written as JoeyNMT's; it then translates Multi30k test 2016 with beam 5
and greedily, `--batch-size` sentences at a time, three times, and the first hundred one by one, once before they are
timed. The last line is JSON: figures for `"peer"` of a row in `recipes/reports/speed.jsonl`, medians with the 10th and
90th percentile, and the share of strings equal to those of this library, the proof that the models are the same.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

VERSIONS = "torch==2.13.0", "joeynmt==2.3.0", "importlib_metadata"
SPECIAL = ["<unk>", "<pad>", "<s>", "</s>"]  # JoeyNMT's ids 0 to 3
ORDER = [1, 0, 2, 3]  # the same in this library's ids
SINGLES, PASSES = 100, 3


def weights(model) -> dict:
    """A `JoeyNMTSizes` model's weights under JoeyNMT's names, in its order of gates and ids."""
    import numpy as np
    from keras import ops

    def gates(kernel):  # (..., 3 H), gates z r h, to (3 H, ...), gates r z h
        update, reset, new = np.split(ops.convert_to_numpy(kernel), 3, axis=-1)
        return np.concatenate([reset, update, new], -1).T

    def rows(matrix):
        matrix = ops.convert_to_numpy(matrix)
        return np.concatenate([matrix[ORDER], matrix[len(ORDER) :]])

    (attention,), bridge = model.decoder.attentions, ops.convert_to_numpy(model.bridge.kernel)
    attentional = ops.convert_to_numpy(model.decoder.attentional.kernel)  # of [c ; s]; JoeyNMT's of [s ; c]
    context = len(attentional) - len(bridge)
    found = {
        "src_embed.lut.weight": rows(model.source_embedding.embeddings),
        "trg_embed.lut.weight": rows(model.target_embedding.embeddings),
        "decoder.att_vector_layer.weight": np.concatenate([attentional[context:], attentional[:context]]).T,
        "decoder.att_vector_layer.bias": ops.convert_to_numpy(model.decoder.attentional.bias),
        "decoder.attention.key_layer.weight": ops.convert_to_numpy(attention.key_kernel).T,
        "decoder.attention.query_layer.weight": ops.convert_to_numpy(attention.query_kernel).T,
        "decoder.attention.energy_layer.weight": ops.convert_to_numpy(attention.score_vector)[None],
        # JoeyNMT's bridge reads both directions' last states, the paper's the backward one's.
        "decoder.bridge_layer.weight": np.concatenate([np.zeros_like(bridge), bridge]).T,
        "decoder.bridge_layer.bias": ops.convert_to_numpy(model.bridge.bias),
        "decoder.output_layer.weight": rows(ops.transpose(model.output_projection.kernel)),
    }
    cells = {
        "encoder.rnn.{}_l0": model.encoder.forward_cells[0],
        "encoder.rnn.{}_l0_reverse": model.encoder.backward_cells[0],
        "decoder.rnn.{}_l0": model.decoder.cell,
    }
    for name, cell in cells.items():
        found[name.format("weight_ih")], found[name.format("weight_hh")] = map(
            gates, (cell.kernel, cell.recurrent_kernel)
        )
        found[name.format("bias_ih")], found[name.format("bias_hh")] = map(gates, ops.convert_to_numpy(cell.bias))
    return found


def prepare(work: Path, data: Path, preset: Path) -> list[str]:
    """Writes data, vocabularies, weights and configuration; returns what this library translates (beam 5, no penalty).

    JoeyNMT's length penalty is its own, so the strings are compared without; times are taken with it.
    """
    import numpy as np

    from keras_attn import Translator
    from tests.benchmarks.joeynmt_sizes import EMBEDDING, UNITS
    from tests.benchmarks.measuring import sentences

    (work / "data").mkdir(parents=True, exist_ok=True)
    for split in ("val", "test"):
        for language, lines in zip(("de", "en"), sentences(data, split), strict=True):
            (work / "data" / f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    translator = Translator.from_preset(preset)
    for language, tokenizer in (("de", translator.source_tokenizer), ("en", translator.target_tokenizer)):
        words = SPECIAL + tokenizer.tokens(range(len(SPECIAL), tokenizer.vocabulary_size))
        (work / "data" / f"vocabulary.{language}").write_text("\n".join(words) + "\n", encoding="utf-8")
    np.savez(work / "weights.npz", **weights(translator.model))

    # JSON is YAML.
    (work / "config.yaml").write_text(json.dumps(configuration(work, UNITS, EMBEDDING)), encoding="utf-8")
    sources, _ = sentences(data, "test")
    found = translator.generate(sources, beam_size=5, length_penalty=0.0, return_alignments=False)
    return [translation.text for translation in found]


def configuration(work: Path, units: int, embedding_size: int) -> dict:
    """JoeyNMT's, of the same sizes."""

    def side(language):
        plain = {"level": "word", "lowercase": False, "normalize": False, "max_length": 100}
        return plain | {
            "lang": language,
            "voc_file": str(work / "data" / f"vocabulary.{language}"),
            "tokenizer_cfg": {"pretokenizer": "none"},
        }

    def recurrent(dropout):
        sizes = {"type": "recurrent", "rnn_type": "gru", "hidden_size": units, "num_layers": 1}
        embeddings = {"embedding_dim": embedding_size, "scale": False, "dropout": 0.5}
        return sizes | {"embeddings": embeddings, "dropout": dropout}

    special = {f"{name}_token": token for name, token in zip(("unk", "pad", "bos", "eos"), SPECIAL, strict=True)}
    special |= {f"{name}_id": n for n, name in enumerate(("unk", "pad", "bos", "eos"))}
    decoder = {"hidden_dropout": 0.3, "input_feeding": True, "init_hidden": "bridge", "attention": "bahdanau"}
    return {
        "name": "peer",
        "joeynmt_version": "2.3.0",
        "model_dir": str(work / "out"),
        "use_cuda": False,
        "fp16": False,
        "random_seed": 42,
        "data": {"dev": str(work / "data/val"), "test": str(work / "data/test"), "dataset_type": "plain"}
        | {"src": side("de"), "trg": side("en"), "special_symbols": special},
        "testing": {"beam_size": 5, "beam_alpha": 1.0, "eval_metrics": ["bleu"], "max_output_length": -1}
        | {"load_model": str(work / "out/peer.ckpt"), "batch_size": 128, "batch_type": "sentence"},
        "training": {"optimizer": "adam", "learning_rate": 1e-3, "batch_size": 128, "batch_type": "sentence"}
        | {"epochs": 1, "normalization": "tokens", "scheduling": "exponential", "num_workers": 0},
        "model": {"encoder": recurrent(0.0) | {"bidirectional": True}, "decoder": recurrent(0.0) | decoder},
    }


def measure(work: Path, batch_size: int) -> dict:
    """Runs in the environment: JoeyNMT's own `predict`, timed, and its translations without a length penalty."""
    import logging

    import numpy as np
    import torch
    from joeynmt.config import load_config, parse_global_args
    from joeynmt.prediction import predict
    from joeynmt.prediction import prepare as load

    logging.disable(logging.CRITICAL)
    (work / "out").mkdir(exist_ok=True)
    with np.load(work / "weights.npz") as found:
        state = {name: torch.from_numpy(found[name].copy()) for name in found}
    torch.save({"model_state": state}, work / "out" / "peer.ckpt")
    options = parse_global_args(load_config(work / "config.yaml"), rank=0, mode="test")
    model, _, _, test = load(options, rank=0, mode="test")

    count = len(test)

    def translate(beam_size, batch_size, indices=range(count), alpha=1.0):
        test.reset_indices(random_subset=-1)
        test.indices = list(indices)
        search = {"beam_size": beam_size, "batch_size": batch_size, "beam_alpha": alpha}
        begin = time.perf_counter()
        _, _, texts, *_ = predict(
            model=model,
            data=test,
            compute_loss=False,
            device=options.device,
            rank=0,
            n_gpu=options.n_gpu,
            num_workers=0,
            normalization="batch",
            args=options.test._replace(batch_type="sentence", **search),
            autocast=options.autocast,
        )
        return time.perf_counter() - begin, texts

    def rates(beam_size):
        return [count / translate(beam_size, batch_size)[0] for _ in range(PASSES)]

    for _ in range(2):  # the first pass is a warm-up
        single = [1000 * translate(5, 1, [n])[0] for n in range(SINGLES)]
    return {
        "sentences_per_second": rates(5),
        "greedy_sentences_per_second": rates(1),
        "single_sentence_ms": single,
        "translations": translate(5, 128, alpha=-1.0)[1],
    }


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, help="folder of the environment, made on first use")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("KERAS_ATTN_DATA", ".")), help="with data/")
    parser.add_argument("--preset", type=Path)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)  # in the environment
    arguments = parser.parse_args(argv)
    work = arguments.work.resolve()
    if arguments.measure:
        print(json.dumps(measure(work, arguments.batch_size)))
        return 0
    if arguments.preset is None:
        parser.error("Expected --preset RUN.")
    from tests.benchmarks.measuring import installed, run_process, with_spread  # here: the environment has this file

    python = installed(work / "venv", *VERSIONS) / "python"
    ours = prepare(work, arguments.data, arguments.preset)
    line = Path(__file__).resolve(), work, "--measure", f"--batch-size={arguments.batch_size}"
    found = run_process(*line, python=python)
    theirs = found.pop("translations")
    result = {"system": "JoeyNMT 2.3 (torch)", "batch_size": arguments.batch_size}
    for name, values in found.items():
        result |= with_spread(name, values)
    result["same_strings"] = round(sum(map(str.__eq__, ours, theirs)) / len(ours), 3)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
