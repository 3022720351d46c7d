"""The benchmarks' sections of the results page, written from the last lines of their output."""

from recipes.pages.markdown import table

_PEER = "in brackets the ratio to JoeyNMT 2.3"
_TIE = (
    "a tie is a difference of scores of at most 1e-5, such as the rounding of a matrix product that depends on its "
    "shape"
)


def sections(rows: list[dict]) -> list[str]:
    """Paragraphs and tables in Markdown, for the benchmarks that have rows."""
    results = {}
    for row in rows:
        results.setdefault(row["benchmark"], []).append(row)
    speed = [
        *_rates(results.get("train", []), results.get("decode", [])),
        *_invariance(results.get("batch_invariance", [])),
    ]
    serving = [
        *_serving(results.get("serve", [])),
        *_strings(results.get("strings", [])),
    ]
    return [*(["## Speed", *speed] if speed else []), *(["## Serving", *serving] if serving else [])]


def _figure(row: dict, name: str) -> str:
    """A figure, with its ratio to the peer's if there is one."""
    value, peer = row[name], row.get("peer", {}).get(name)
    return f"{value:,}" + (f" ({value / peer:.2f})" if peer else "")


def _rates(train: list[dict], decode: list[dict]) -> list[str]:
    if not train and not decode:
        return []
    parts = [
        "13.0 M parameters on multi30k-tok de-en, 2 cores, 128 sentences a batch (`tests.benchmarks.train_throughput` "
        f"and `decode_throughput`); {_PEER}, measured before or after on the same, shared machine, with "
        "the same sizes and, for decoding (`joeynmt_peer`), the same weights. The share of the machine's matrix-"
        "product rate does not count padding as work."
    ]
    columns = (
        (train, {"target_tokens_per_second": "target tokens/s", "peak_memory_mb": "peak MB"}),
        (
            decode,
            {
                "sentences_per_second": "beam 5, sentences/s",
                "greedy_sentences_per_second": "greedy, sentences/s",
                "single_sentence_ms": "one sentence, beam 5, ms",
            },
        ),
    )
    for rows, names in columns:
        head = ["system", *names.values(), "share of matrix products"]
        lines = [[row["backend"], *(_figure(row, name) for name in names), str(row["share_of_gemm"])] for row in rows]
        parts += [table(head, lines)] if rows else []
    return parts


def _invariance(rows: list[dict]) -> list[str]:
    """Whether translations depend on the batch."""
    head = ["run", "backend", "sentences", "adversarial lines", "strings that differ", "of these, ties"]
    names = ["run", "backend", "sentences", "adversarial", "different", "ties"]
    said = (
        "The same lines translated one by one, in batches of 7 and of 128 (`tests.benchmarks.batch_invariance`, beam "
        f"5); {_TIE}."
    )
    return [said, table(head, [[str(row[name]) for name in names] for row in rows])] if rows else []


def _serving(rows: list[dict]) -> list[str]:
    """Latency and throughput of an exported model."""
    if not rows:
        return []
    names = {
        "single_sentence_ms": "one sentence, ms",
        "single_sentence_99th_ms": "99th percentile",
        "sentences_per_second": f"sentences/s, {rows[0]['batch_size']} at once",
        "export_seconds": "export, s",
        "load_seconds": "load, s",
        "weights_mb": "weights MB",
        "bleu": "BLEU",
    }
    lines = [[row["quantize"] or "float32", *(_figure(row, name) for name in names)] for row in rows]
    return [
        "The SavedModel of the model of 13.0 M parameters in the stock server's loader, a C program with XLA disabled, "
        f"on {rows[0]['cores']} cores, beam {rows[0]['beam']}, sentences of multi30k-tok de-en "
        f"(`tests.benchmarks.serving_latency`); {_PEER}, in Python on the same sentences, with the same weights "
        "(`joeynmt_peer`).",
        table(["weights", *names.values()], lines),
    ]


def _strings(rows: list[dict]) -> list[str]:
    """Whether an exported model returns the strings that Python returns."""
    columns = {
        "run": "run",
        "backend": "backend",
        "sentences": "sentences",
        "adversarial": "adversarial lines",
        "different": "strings that differ",
        "ties": "of these, ties",
        "equal_scores": "of equal scores",
        "slowest_line_seconds": "slowest, s",
    }
    said = (
        "`generate` on the backend named, compared with the SavedModel in a process with TensorFlow alone and in the C "
        f"program, both without XLA (`tests.benchmarks.serving_strings`, beam 5); {_TIE}. Equal scores: Python scores "
        "the served string as the server did, but its own beam kept another hypothesis at an earlier step, where two "
        "were a tie. The slowest line was translated alone."
    )
    return [said, table([*columns.values()], [[str(row[name]) for name in columns] for row in rows])] if rows else []
