"""What is fixed when a translator is exported, and recorded beside the graph."""

import dataclasses
import inspect
from typing import Any

from keras_attn.search import beam_search

# One value a request's row, not one an export: a signature of its own may take them as inputs.
_PER_ROW = ("row_max_length", "row_min_length", "forced_prefix")
_OWN = ("max_length", "beam_size", "n_best", "length_penalty", "return_alignments")


@dataclasses.dataclass(frozen=True)
class Options:
    """Search and limits of an exported translator; the first three as in `Translator.generate`.

    Attributes:
        max_source_length: Source tokens that are read of a line, end token included; the rest is left out. It
            bounds the time and the memory that any line can take.
        batch_size, tokens_per_batch: Sentences and padded source tokens searched at once, which bound the
            memory that any request can take. They change no result.
        search: Further keyword arguments of `keras_attn.search.beam_search`.

    Raises:
        ValueError: for a value out of range, or a search option that does not exist or belongs to a request.
    """

    beam_size: int = 5
    length_penalty: float = 1.0
    max_length: int | None = None
    max_source_length: int = 4096
    batch_size: int = 64
    tokens_per_batch: int = 8192
    search: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name in ("beam_size", "max_length", "max_source_length", "batch_size", "tokens_per_batch"):
            value = getattr(self, name)
            if value is None and name == "max_length":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"Expected {name} to be a whole number of at least 1. Received: {name}={value!r}")
        if not 0 <= self.length_penalty < float("inf"):
            raise ValueError(f"Expected length_penalty of at least 0. Received: {self.length_penalty!r}")
        parameters = inspect.signature(beam_search).parameters.values()
        known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in (*_PER_ROW, *_OWN)]
        unknown = [name for name in self.search if name not in known]
        if unknown:
            raise ValueError(f"Expected search options among: {', '.join(known)}. Received: {', '.join(unknown)}")

    def generate_arguments(self) -> dict[str, Any]:
        """The arguments with which `Translator.generate` gives what the exported graph gives."""
        own = {name: getattr(self, name) for name in ("beam_size", "length_penalty", "max_length")}
        search = dict(self.search)
        return own | {"banned_tokens": search.pop("banned_token_ids", ())} | search
