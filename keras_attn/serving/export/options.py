"""What is fixed when a translator is exported, and recorded beside the graph."""

import dataclasses
import inspect
from typing import Any

from keras_attn.decoding import Limits, check_sizes
from keras_attn.search import beam_search

# One value a request's row, not one an export: a signature of its own may take them as inputs.
_PER_ROW = ("row_max_length", "row_min_length", "forced_prefix")
_OWN = ("max_length", "beam_size", "n_best", "length_penalty", "return_alignments", "halvings")
QUANTIZATIONS = (None, "int8", "float16")


@dataclasses.dataclass(frozen=True)
class Options:
    """Search and limits of an exported translator, the first ones as in `Translator.generate`.

    Attributes:
        n_best: Hypotheses that `translate_n_best` gives; None: as many as the beam has.
        max_source_length: Source tokens that are read of a line, end token included; the rest is left out. It
            bounds the time and the memory that any line can take.
        batch_size, tokens_per_batch: Sentences and padded source tokens searched at once, which bound the
            memory that any request can take. They change no result. Few sentences of like length end together: 32
            in two halves take a quarter less time than at once.
        quantize: How matrices are stored: None (as they are), "int8" or "float16".
        search: Further keyword arguments of `keras_attn.search.beam_search`.

    Raises:
        ValueError: for a value out of range, or a search option that does not exist or belongs to a request.
    """

    beam_size: int = 5
    length_penalty: float = 1.0
    max_length: int | None = None
    max_length_ratio: float | None = None
    min_length: int | None = None
    min_length_ratio: float | None = None
    n_best: int | None = None
    max_source_length: int = 4096
    batch_size: int = 16
    tokens_per_batch: int = 8192
    quantize: str | None = None
    search: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        names = ("beam_size", "max_source_length", "batch_size", "tokens_per_batch")
        check_sizes(**{name: getattr(self, name) for name in names}, n_best=self.hypotheses)
        Limits(self.max_length, self.max_length_ratio, 0.0, self.min_length, self.min_length_ratio)
        if self.hypotheses > self.beam_size:
            raise ValueError(
                f"Expected n_best to be at most beam_size={self.beam_size}. Received: n_best={self.n_best}"
            )
        if not 0 <= self.length_penalty < float("inf"):
            raise ValueError(f"Expected length_penalty of at least 0. Received: {self.length_penalty!r}")
        if self.quantize not in QUANTIZATIONS:
            raise ValueError(f'Expected quantize to be None, "int8" or "float16". Received: {self.quantize!r}')
        parameters = inspect.signature(beam_search).parameters.values()
        known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in (*_PER_ROW, *_OWN)]
        unknown = [name for name in self.search if name not in known]
        if unknown:
            raise ValueError(f"Expected search options among: {', '.join(known)}. Received: {', '.join(unknown)}")

    @property
    def hypotheses(self) -> int:
        return self.beam_size if self.n_best is None else self.n_best

    def generate_arguments(self) -> dict[str, Any]:
        """The arguments with which `Translator.generate` gives what the exported graph gives."""
        names = ("beam_size", "length_penalty", "max_length", "max_length_ratio", "min_length", "min_length_ratio")
        own = {name: getattr(self, name) for name in names}
        search = dict(self.search)
        return own | {"banned_tokens": search.pop("banned_token_ids", ())} | search
