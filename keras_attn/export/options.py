"""The options of an export, fixed in the graph and recorded beside it."""

import dataclasses
from typing import Any

from keras_attn.search import SearchOptions, check_sizes, option

QUANTIZATIONS = ("int8", "float16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(SearchOptions):
    """The options of `export_translator`: those of search, and those of the export itself.

    Args:
        n_best: Hypotheses that `translate_n_best` gives; None: `beam_size`.
        batch_size, tokens_per_batch: Sentences and padded source tokens searched at once, at most, which bounds the
            memory that a request of any size takes. They change no result. Small batches of similar lengths finish
            together: 32 sentences take a quarter less time in two halves than at once.
        max_source_length: Source tokens of a line that are read, end token included; the rest is ignored. It bounds
            the time and the memory that a single line takes.
        jit_compile: bool, compile the search of single best translations by XLA, for a few shapes of batches; the stock
            server then needs its flag `--xla_cpu_compilation_enabled`.
        quantize: How matrices are stored: None (unchanged), "int8" or "float16".
        version: The number of the version, a whole number of at least 1; None: one more than the highest that exists.

    For the other options see `keras_attn.search.SearchOptions`.

    Raises:
        ValueError: if a value is out of range.
    """

    n_best: int | None = option(None, "hypotheses of translate_n_best (default: the beam)", range=(1, 1000))
    batch_size: int = option(16, "sentences at once, at most", range=(1, 100_000))
    max_source_length: int = option(4096, "source tokens read of a line", range=(1, 100_000))
    jit_compile: bool = option(False, "compile the search by XLA, which a server has to allow", const=True)
    quantize: str | None = option(None, "store matrices in fewer bits", choices=QUANTIZATIONS)
    version: int | None = option(None, "number of the version (default: the next)", range=(1, 2**31))

    def __post_init__(self):
        super().__post_init__()
        check_sizes(max_source_length=self.max_source_length)
        if self.quantize not in (None, *QUANTIZATIONS):
            raise ValueError(f'Expected quantize to be None, "int8" or "float16". Received: {self.quantize!r}')
        if self.version is not None:
            check_sizes(version=self.version)

    @property
    def hypotheses(self) -> int:
        """Hypotheses that `translate_n_best` gives."""
        return self.beam_size if self.n_best is None else self.n_best

    def generate_arguments(self) -> dict[str, Any]:
        """The arguments with which `Translator.generate` gives the translations of the exported graph."""
        names = {field.name for field in dataclasses.fields(SearchOptions)} - {"n_best", "batch_size"}
        return {name: getattr(self, name) for name in names}
