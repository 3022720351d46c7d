"""Roles of the heads of a Transformer, and the score that each of them is worth.

    python -m recipes.train transformer --corpus phrases --seed 0 --set max_words=12 epochs=12 validation_sentences=50
    python -m recipes.studies.head_roles runs/transformer --max-words 12

The references of the test split are teacher-forced. For each head of encoder, decoder and cross attention the report
has the mean share of a row's weight that is on the token **before**, on the **same** one and on the one **after**; on
the **rarest** token of the sentence in the training text; on **punctuation**; and on the **end** of the sentence, or in
the decoder on its start. A share is over the rows that can have such a token: none looks before the first. In cross
attention "same" is the source token of the predicted one by IBM Model 1, which is learned from the training tokens,
and by none of the heads. "even" has the shares of equal weights.

A head is removed by zeros in its rows of the output projection (Michel et al. 2019, eq. 2). The report has the BLEU of
greedy search without each head alone, and without more and more of them, the cheapest alone first.
"""

import argparse
import itertools
import re
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn.cli import command, line_streaming
from keras_attn.cli.command import between, run_folder
from keras_attn.evaluation import Model1
from keras_attn.models import TransformerSeq2Seq
from keras_attn.training import surroundings
from recipes.studies.heads import chosen
from recipes.studies.options import add_comparison, compared, comparison

KINDS = "encoder", "decoder", "cross"
ROLES = "before", "same", "after", "rarest", "punctuation", "end"


def main(argv=None) -> int:
    parser = command.Parser("recipes.studies.head_roles", description=__doc__)
    option = parser.add_argument
    option("run", metavar="RUN", type=run_folder, help="folder of a run of a Transformer")
    add_comparison(parser, "RUN")
    option("--max-words", metavar="N", type=between(int, 1, 10**9), help="sentences of at most N words (default: all)")
    option("--out", type=Path, default=Path("runs", "head_roles"), help="a new folder (default: %(default)s)")
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    from keras_attn import Translator, evaluation
    from keras_attn.training import report

    reports, corpus = compared(arguments, [arguments.run])
    measured, _ = chosen(corpus, arguments.split, arguments.max_words, ())
    sources, references = map(list, zip(*measured, strict=True))
    translator, trained = Translator.from_preset(arguments.run), reports[arguments.run]
    translator.model.check_attention()
    if not isinstance(translator.model, TransformerSeq2Seq):
        raise ValueError(f"Expected a run of a Transformer. Received: {type(translator.model).__name__}")
    kernels = output_kernels(translator.model)
    complete = {name: ops.convert_to_numpy(kernel) for name, kernel in kernels.items()}

    def bleu(removed: Collection[str] = ()):
        remove(kernels, complete, removed)
        found = translator.generate(sources, beam_size=1, return_alignments=False)
        return evaluation.bleu([one.text for one in found], references, trained["config"].get("tokenize", "13a"))

    with line_streaming.new_folder(arguments.out):
        rows, score = roles(translator, measured, corpus.splits["train"]), bleu()
        for row in rows[len(KINDS) :]:
            row["bleu"] = round(bleu([row["name"]]).score, 2)
        names = [row["name"] for row in sorted(rows[len(KINDS) :], key=lambda row: -row["bleu"])]
        pruned = [{"name": name, "bleu": round(bleu(names[: n + 1]).score, 2)} for n, name in enumerate(names)]
        own = ["--max-words", str(arguments.max_words)] if arguments.max_words else []
        found = comparison("head_roles", arguments, [arguments.run], corpus, own) | {
            "run": {key: trained.get(key) for key in ("recipe", "command", "seed", "parameters")},
            "max_words": arguments.max_words,
            "measured": len(measured),
            "complete": {"score": round(score.score, 2), "signature": score.signature},
            "rows": rows,
            "pruned": pruned,
        }
        report.write(arguments.out / "report.json", found | surroundings())
    print(f"The study is in {arguments.out}: report.json.")


def output_kernels(model) -> dict[str, Any]:
    """The output projections `(N, D, H)` of a Transformer's attentions, by name: "encoder 1"."""
    found = {}
    for side, layers in (("encoder", model.encoders), ("decoder", model.decoders)):
        for number, layer in enumerate(layers, start=1):
            for weight in layer.weights:
                if weight.path.endswith("attention_output/kernel"):
                    found[f"{'cross' if 'cross' in weight.path else side} {number}"] = weight
    return found


def remove(kernels: dict[str, Any], complete: dict[str, np.ndarray], heads: Collection[str]) -> None:
    """Sets the projections `(N, D, H)` to the complete ones, with zeros for these heads: "encoder 1, head 2"."""
    for name, kernel in kernels.items():
        kept = [[[f"{name}, head {n + 1}" not in heads]] for n in range(len(complete[name]))]  # (N, 1, 1)
        kernel.assign(complete[name] * np.array(kept))


def roles(translator, pairs: Sequence[tuple[str, str]], training: Sequence[Sequence[str]]) -> list[dict]:
    """The share of each role in percent, or None where there is none: first of equal weights, then of each head.

    Args:
        translator: A `keras_attn.Translator` of a Transformer.
        pairs: Sources and targets.
        training: The sources and the targets of the training split.
    """
    model, tokenizers = translator.model, (translator.source_tokenizer, translator.target_tokenizer)

    def tokens_of(sides):
        coded = (one.encode_batch(side) for one, side in zip(tokenizers, sides, strict=True))
        return [[one.tokens(ids) for ids in side] for one, side in zip(tokenizers, coded, strict=True)]

    text, own = tokens_of(training), tokens_of(zip(*pairs, strict=True))
    counts = [Counter(itertools.chain.from_iterable(side)) for side in text]
    model1 = Model1(*(list(map(" ".join, side)) for side in text), iterations=5)
    end, start = model.source_special_ids.end, model.target_special_ids.start
    ids = {
        "encoder_token_ids": [[*tokenizers[0].encode(source), end] for source, _ in pairs],
        "decoder_token_ids": [[start, *tokenizers[1].encode(target)] for _, target in pairs],
    }
    found = model.attentions({name: keras.utils.pad_sequences(rows, padding="post") for name, rows in ids.items()})
    weights = {kind: ops.convert_to_numpy(found[kind]) for kind in KINDS}  # (layers, B, N, T, S)
    sums, rows = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0)
    for n, (source, target) in enumerate(zip(*own, strict=True)):
        linked = {j: i for i, j in model1.links(" ".join(source), " ".join(target))} | {len(target): len(source)}
        sides = [*source, "</s>"], ["<s>", *target]
        for kind, queries, memory in zip(KINDS, (0, 1, 1), (0, 1, 0), strict=True):
            shape = len(sides[queries]), len(sides[memory])  # T, S
            places = [linked.get(i, -9) if kind == "cross" else i for i in range(shape[0])]
            seen = np.tri(*shape) if kind == "decoder" else np.ones(shape)
            of_heads = weights[kind][:, n, :, : shape[0], : shape[1]].reshape(-1, *shape)
            of_heads = np.concatenate([[seen / seen.sum(axis=1, keepdims=True)], of_heads])  # (1 + layers N, T, S)
            masks = seen * _masks(sides[memory], places, counts[memory])  # (roles, T, S)
            sums[kind] = sums[kind] + np.einsum("hts,rts->hr", of_heads, masks)
            rows[kind] = rows[kind] + masks.any(axis=-1).sum(axis=-1)  # (roles,)
    even, heads = [], []
    for kind in KINDS:
        layers, _, number, *_ = weights[kind].shape
        names = [f"{kind} {layer + 1}, head {head + 1}" for layer, head in np.ndindex(layers, number)]
        for name, shares in zip([f"{kind}, even", *names], sums[kind] / np.maximum(rows[kind], 1), strict=True):
            known = zip(ROLES, 100 * shares, rows[kind], strict=True)
            row = {role: round(float(share), 1) if count else None for role, share, count in known}
            (heads if "head" in name else even).append({"name": name} | row)
    return even + heads


def _masks(tokens: Sequence[str], places: Sequence[int], counts: Counter) -> np.ndarray:
    """The tokens of each role `(roles, T, S)`, for rows whose own places are `places` `(T,)`."""
    distance = np.arange(len(tokens)) - np.array(places)[:, None]  # (T, S)
    rarest = min(tokens, key=lambda token: counts[token] or np.inf)  # the ends of sentences have no count
    of_tokens = (
        [token == rarest for token in tokens],
        [bool(re.fullmatch(r"[^\w<>]+", token.strip("▁"))) for token in tokens],
        [token in ("<s>", "</s>") for token in tokens],
    )
    same = [np.broadcast_to(mask, distance.shape) for mask in of_tokens]
    return np.stack([*(distance == n for n in (-1, 0, 1)), *same])


if __name__ == "__main__":
    sys.exit(main())
