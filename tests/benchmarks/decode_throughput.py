"""Translation speed of a trained preset on the 1,000 sentences of Multi30k test 2016.

    KERAS_BACKEND=jax python -m tests.benchmarks.decode_throughput --data DIR --preset RUN [--beam 5]

RUN is a preset of `tests.benchmarks.joeynmt_sizes` (its docstring has the command that trains one); quality matters,
since it decides the lengths. DIR holds `data/multi30k-tok/` (default: $KERAS_ATTN_DATA). The first pass over all
sentences compiles; then come three timed passes with the beam, as many greedy ones, and 100 single sentences with the
beam, one a call. The last line is JSON: medians, with the 10th and 90th percentile as `..._spread`, and the share of
the machine's rate of float32 matrix products (`tests.benchmarks.accelerator_work`).
`--int8`: products in int8. `--shortlist`: in a shortlist that is learnt from the training text. With either the result
also has the BLEU of float32 and the whole vocabulary, and the share of translations that change.
"""

import json
import statistics
import sys

import keras

from keras_attn import Translator
from keras_attn.evaluation.scores import bleu
from tests.benchmarks.accelerator_work import gemm_gflops, search_flops
from tests.benchmarks.measuring import search_parser, sentences, timed, translator_of, with_spread

SINGLES, PASSES = 100, 3


def main(argv=None) -> int:
    arguments = search_parser(__doc__, batch_size=128).parse_args(argv)
    sources, references = sentences(arguments.data, "test")
    translator = translator_of(arguments)
    options = {"batch_size": arguments.batch_size, "return_alignments": False}
    beam = options | {"beam_size": arguments.beam}
    exact = None
    if arguments.int8 or arguments.shortlist:
        exact = Translator.from_preset(arguments.preset).generate(sources, **beam)

    def passes(**chosen):
        first, found = timed(lambda: translator.generate(sources, **chosen))
        times = [timed(lambda: translator.generate(sources, **chosen))[0] for _ in range(PASSES)]
        return first, times, found

    size = translator.target_tokenizer.vocabulary_size
    gemm = [gemm_gflops()]
    first_call, seconds, found = passes(**beam)
    gemm.append(gemm_gflops())
    rates = [len(sources) / one for one in seconds]
    print(f"beam {arguments.beam}: {statistics.median(rates):.1f} sentences a second", flush=True)
    _, greedy_seconds, greedy = passes(**options | {"beam_size": 1})
    gemm.append(gemm_gflops())
    singles = sources[:SINGLES]
    for text in singles:
        translator.generate([text], **beam)
    single = [timed(lambda text=text: translator.generate([text], **beam))[0] for text in singles]
    gemm.append(gemm_gflops())
    lengths = [(len(one.source_token_ids), len(one.token_ids)) for one in found]
    tokens = sum(target for _, target in lengths)
    rate = statistics.median(gemm)

    def share(lengths, seconds) -> float:
        """Of the rate of matrix products, by the tokens found, times the beam: padding and further steps are loss."""
        return round(sum(search_flops(size, (1, *one), arguments.beam) for one in lengths) / seconds / 1e9 / rate, 3)

    result = {
        "benchmark": "decode",
        "backend": keras.backend.backend(),
        "beam": arguments.beam,
        "products": "int8" if arguments.int8 else "float32",
        "shortlist": arguments.shortlist,
        "batch_size": arguments.batch_size,
        **with_spread("sentences_per_second", rates),
        "target_tokens_per_second": round(tokens / statistics.median(seconds)),
        **with_spread("greedy_sentences_per_second", [len(sources) / one for one in greedy_seconds]),
        **with_spread("single_sentence_ms", [1000 * one for one in single]),
        "gemm_gflops": round(rate, 1),
        "share_of_gemm": share(lengths, statistics.median(seconds)),
        "single_share_of_gemm": share(lengths[:SINGLES], sum(single)),
        "seconds_first_call": round(first_call, 1),
        "tokens_per_sentence": round(tokens / len(sources), 1),
        "bleu": round(bleu([t.text for t in found], references, tokenize="none").score, 2),
        "greedy_bleu": round(bleu([t.text for t in greedy], references, tokenize="none").score, 2),
    }
    if exact:
        differ = [one.text != other.text for one, other in zip(found, exact, strict=True)]
        score = bleu([t.text for t in exact], references, tokenize="none").score
        result |= {"float32_bleu": round(score, 2), "changed_strings": round(statistics.mean(differ), 3)}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
