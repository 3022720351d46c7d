"""How near a search of the 13.0 M configuration comes to what the machine can do.

`share_of_gemm`: the matrix products of the tokens found, times the beam, against the rate of a float32 product of two
2048 x 2048 matrices. Padding, hypotheses after a sentence's end, and steps that prove that the best is found are all
loss. `share_of_bandwidth`: the bytes that the steps of the longest translation of each batch cannot do without
(`tests.benchmarks.accelerator_work`), against the rate of y = x + 1 on an array as large as the weights of a step.
"""

import dataclasses
import statistics
from collections.abc import Sequence

from tests.benchmarks import accelerator_cases
from tests.benchmarks.accelerator_work import SIZES, search_bytes, search_flops
from tests.benchmarks.joeynmt_sizes import JoeyNMTSizes

FLOAT32 = {"dtype": "float32"}
SETTINGS = {"seconds": 0.5, "matrix": 2048}


class Limits:
    """The rates of this process' backend, to be measured several times.

    Args:
        translator: A model of `tests.benchmarks.joeynmt_sizes` has shares; that of another has rates alone.
        beam: The size of the beam.
    """

    def __init__(self, translator, beam: int):
        sides = translator.source_tokenizer, translator.target_tokenizer
        names = "source_vocabulary", "target_vocabulary"
        sizes = {name: side.vocabulary_size for name, side in zip(names, sides, strict=True)}
        self._sizes = dataclasses.replace(SIZES["full"]["13.0M"], **sizes)
        self._is_known = isinstance(translator.model, JoeyNMTSizes)
        self._beam, self._measured = beam, []

    def measure(self) -> None:
        weights = int(search_bytes(self._sizes, (0, 0, 1), self._beam, "float32")) // 4
        self._measured.append(accelerator_cases.rates(FLOAT32, SETTINGS | {"copied": weights}))

    def rates(self) -> dict:
        """The medians."""
        names = {"gemm_gflops": "matrix_gflops", "copy_gigabytes_per_second": "copy_gigabytes_per_second"}
        found = {new: statistics.median(one[name] for one in self._measured) for new, name in names.items()}
        return {name: round(value, 1) for name, value in found.items()}

    def shares(self, lengths: Sequence[tuple[int, int]], batch: int, seconds: float) -> dict:
        """The parts of the rates.

        Args:
            lengths: Tokens of source and translation of each sentence, ends included.
            batch: Sentences in a batch, which are sorted by the source's length.
            seconds: The time of all of them.
        """
        if not self._is_known:
            return {}
        flops = sum(search_flops(self._sizes, (1, *one), self._beam) for one in lengths)
        groups = [sorted(lengths)[start : start + batch] for start in range(0, len(lengths), batch)]
        shapes = [(len(group), *map(max, zip(*group, strict=True))) for group in groups]
        moved = sum(search_bytes(self._sizes, shape, self._beam, "float32") for shape in shapes)
        rates = self.rates()
        return {
            "share_of_gemm": round(flops / seconds / 1e9 / rates["gemm_gflops"], 3),
            "share_of_bandwidth": round(moved / seconds / 1e9 / rates["copy_gigabytes_per_second"], 3),
        }
