"""Parallel text as batches of static shape: bucketing, shuffling, padding.

A bucket is one shape (B, S, T). Every pair goes into the smallest bucket that both of its sides fit into, and every
batch of a bucket has exactly its shape, so that XLA compiles once per bucket. The rectangles (S, T) are chosen from
the data so that as few positions as possible are padding.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np

from keras_attn.backend import data_shard
from keras_attn.data.alignment_targets import AlignmentTargets
from keras_attn.data.batch_plan import BatchOrder, PlanOptions, batch_plan
from keras_attn.data.token_store import ArrayStore, DrawnStore, TokenStore, encode_files
from keras_attn.text import (
    DEFAULT_IDS,
    PathLike,
    SpecialIds,
    Tokenizer,
    add_temporary_ids,
    encode_lines,
    text_paths,
)


class ParallelDataset(keras.utils.PyDataset):
    """Pairs of rows of token ids as length-bucketed batches for `fit` and `evaluate`, on every backend.

    Batch i is `({"encoder_token_ids": (B, S), "decoder_token_ids": (B, T)}, labels (B, T), weights (B, T))`, with
    int32 ids and float32 weights. A source row is its ids and the end id. The decoder ids are the start id and the
    target's ids, the labels are the target's ids and the end id, and the weights are 1 on labels and 0 on padding. If
    the last batch of a bucket lacks rows, it is filled with rows of an end id alone and a start id alone, of weight
    0. No batch has more rows than there are pairs, rounded up to a multiple of 8. Lengths include the start or end.

    The order of an epoch depends only on `seed` and `epoch`, and `on_epoch_end` moves to the next epoch. The `fit` of
    this package's models reads the epochs that Keras counts: with `initial_epoch` or `BackupAndRestore` a resumed run
    sees the same batches as an uninterrupted one. A `fit` that begins with epoch 0 goes on with the dataset's own
    `epoch`, and `evaluate` does not move it. That of another Keras model skips some epochs, because Keras calls
    `on_epoch_end` before the first one, too; give it `shuffle=False`, or it shuffles the batches again, by Python's
    `random`. Do not pass `steps_per_epoch`: an epoch is one pass over the data, or `batches_per_epoch` batches.

    The workers of `PyDataset` are not offered. A batch takes 0.1 ms, and Keras 3.15 carries the batches that they have
    queued over into the next epoch, which then misses some pairs and sees others twice.

    Args:
        source, target: Rows of ids without start and end, as lists or as a `TokenStore`. A pair with an empty side is
            dropped and counted as blank.
        batch_size: int, sentences per batch. Give either this or `tokens_per_batch`.
        tokens_per_batch: int, upper limit of B * max(S, T): about so many positions of the longer side, padding
            included, in a batch of any bucket. B is a multiple of 8 if it is 8 or more.
        bucket_boundaries: The lengths of the buckets, each an int for both sides or a pair (S, T), one of which is
            the longest on both sides; or an int, the maximum number of buckets to choose from the data. None means 8.
        max_length: int, length of the longest row to keep, its end included. None means no limit.
        on_too_long: "drop" pairs with a side that is too long, or "truncate" that side.
        shuffle: bool. False gives the same order in every epoch, short buckets first.
        curriculum_epochs: int, number of first passes in which the shuffled batches are sorted by bucket, short ones
            first: attention is learnt on short sentences first, which is cheaper (SortaGrad: Amodei et al. 2016,
            arXiv:1512.02595, section 3.2).
        batches_per_epoch: int, batches of an epoch, so that Keras validates and saves within a pass over much data: an
            epoch goes on where the previous one ended, from pass to pass. None means one pass.
        seed: int of 0 or more.
        shard: (index, count), the part of this process in data-parallel training with `count` processes. The pairs of
            the shards are disjoint, and at each step all shards have a batch of the same shape. "auto" asks the running
            job: `keras.distribution`, `jax.distributed` or `torch.distributed`, which must be initialised before. In
            one process alone it is (0, 1).
        source_special_ids, target_special_ids: Of lists of ids, if they are no tokenizer's. Without an end, rows are
            their ids alone. The target needs a start.

    Attributes:
        shapes: list of (B, S, T), the buckets in use.
        epoch: int, the epoch whose order is in use.
        shard: (index, count), the shard in use.

    Raises:
        ValueError: If the sides have different lengths, no pair is left, or an argument is out of range.

    Example:
        >>> dataset = keras_attn.ParallelDataset([[4, 5], [6]], [[7], [8, 9, 5]], batch_size=2)
        >>> inputs, labels, weights = dataset[0]
        >>> labels.shape
        (2, 4)
    """

    _alignment_targets: AlignmentTargets | None = None

    def __init__(
        self,
        source: Sequence[Sequence[int]] | TokenStore,
        target: Sequence[Sequence[int]] | TokenStore,
        *,
        batch_size: int | None = None,
        tokens_per_batch: int | None = None,
        bucket_boundaries: int | Sequence[int | tuple[int, int]] | None = None,
        max_length: int | None = None,
        on_too_long: str = "drop",
        shuffle: bool = True,
        curriculum_epochs: int = 0,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        shard: tuple[int, int] | Literal["auto"] = (0, 1),
        source_special_ids: SpecialIds = DEFAULT_IDS,
        target_special_ids: SpecialIds = DEFAULT_IDS,
    ):
        super().__init__()
        shard = data_shard() if isinstance(shard, str) and shard == "auto" else shard
        optional = {"batch_size": batch_size, "tokens_per_batch": tokens_per_batch, "max_length": max_length}
        optional |= {"batches_per_epoch": batches_per_epoch}
        _check_options(optional, on_too_long, curriculum_epochs, seed, shard)
        self._sides = TokenStore.of(source, source_special_ids), TokenStore.of(target, target_special_ids)
        self._sides[1].special_ids.check_start()
        if len(self._sides[0]) != len(self._sides[1]):
            raise ValueError(
                f"Expected as many source as target rows. Received: {len(self._sides[0]):,} and {len(self._sides[1]):,}"
            )
        self.shard = shard
        options = (batch_size, tokens_per_batch, bucket_boundaries, max_length, on_too_long, shard[1])
        self._plan = batch_plan(self._sides, PlanOptions(*options))
        batches = zip(self._plan.shapes, self._plan.batches, strict=True)
        self.shapes = [shape for shape, number in batches if number]
        self._batch_order = BatchOrder(self._plan, shuffle, curriculum_epochs, batches_per_epoch, seed, shard)
        self.set_epoch(0)

    @classmethod
    def from_text(
        cls,
        source_lines: Sequence[str],
        target_lines: Sequence[str],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        *,
        pointer: bool = False,
        bpe_dropout: float = 0.0,
        links: Sequence[Collection[tuple[int, int]]] | None = None,
        alignment_weight: float = 0.1,
        shift_alignment: bool = False,
        **kwargs: Any,
    ) -> "ParallelDataset":
        """Encodes two lists of lines. A pair with a blank line is dropped and counted.

        Args:
            source_lines, target_lines: The lines of each side.
            source_tokenizer, target_tokenizer: The tokenizer of each side.
            pointer: bool, whether unknown words of a source line get temporary ids, there and in its target line, for
                a model with `pointer=True`; see `keras_attn.text.temporary_ids`. Needs one tokenizer for both sides.
                `from_files`, which encodes each side by itself, does not offer it.
            bpe_dropout: Probability of `keras_attn.text.BPEDropout` for both sides, whose tokenizers must be of level
                "bpe": every batch is segmented when it is drawn, otherwise in each pass over the data, and the same for
                the same `seed` and epoch. Batches keep their shapes and pairs; the lengths in `report` are then upper
                limits. `from_files`, whose token files have one segmentation, does not offer it.
            links: For each pair its links (source word, target word), numbered from 0, for guided alignment: batches
                then have a third input, "alignments" (B, T, S), and `fit` adds a loss of the model's alignments. Words
                are separated by blanks, as by `Tokenizer.words`; each link counts for all tokens of its words.
            alignment_weight: Weight of that loss.
            shift_alignment: bool, whether the links of a word train the alignment of the next word's tokens, or the
                end's, which is computed when the decoder has read the word (Chen et al. 2020, arXiv:2004.14837): for an
                aligner, whose attention need not serve the prediction. A word without links is then linked to the end
                of the source.
            **kwargs: The other arguments of `ParallelDataset`.

        Raises:
            ValueError: If a side is a single string, a line is not valid Unicode, the sides differ in length, or an
                argument is out of range or does not go with another.
        """
        if pointer and kwargs.get("on_too_long") == "truncate":  # a target may copy a word that is cut off
            raise ValueError("Expected on_too_long='drop' with `pointer=True`. Received: on_too_long='truncate'")
        tokenizers = source_tokenizer, target_tokenizer
        rows = encode_lines(source_lines, source_tokenizer), encode_lines(target_lines, target_tokenizer)
        if pointer:
            add_temporary_ids(tokenizers, (source_lines, target_lines), rows)
        sides = [TokenStore.of(ids, one.special_ids) for ids, one in zip(rows, tokenizers, strict=True)]
        if bpe_dropout:
            texts, seed = (source_lines, target_lines), kwargs.get("seed", 0)
            for side in range(2):
                sides[side] = DrawnStore(sides[side], texts[side], tokenizers[side], bpe_dropout, (seed, side))
        dataset = cls(*sides, **kwargs)
        if links is not None:
            dataset._alignment_targets = AlignmentTargets(
                links, tokenizers, sides, alignment_weight, shift=shift_alignment
            )
        return dataset

    @classmethod
    def from_files(
        cls,
        source_path: PathLike | Sequence[PathLike],
        target_path: PathLike | Sequence[PathLike],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        cache_dir: PathLike,
        *,
        workers: int | None = None,
        **kwargs: Any,
    ) -> "ParallelDataset":
        """Encodes text files into token files under `cache_dir` and memory-maps those.

        A pair takes some twenty bytes of memory; the text and its ids stay on disk. The token files are used again as
        long as the text files (their sizes and modification times) and the tokenizers are the same, and the token files
        are as they were written: their SHA-256 is compared each time.

        A call that is interrupted or killed leaves the text that is encoded, and the next call goes on from there. One
        process encodes at a time; others that want the same files wait for it.

        Args:
            source_path, target_path: A file, plain, `.gz`, `.xz` or `.bz2`; a glob such as "news.*.de.gz", whose files
                are taken in the order of their names; or a sequence of these. Each side has as many files, and the nth
                of both have equally many lines.
            source_tokenizer, target_tokenizer: The tokenizer of each side.
            cache_dir: The folder of the token files.
            workers: int, threads that encode text of level "bpe"; see `Tokenizer.encode_batch`. The files are the
                same with any number.
            **kwargs: The other arguments of `ParallelDataset`.

        Raises:
            FileNotFoundError: If a text file does not exist, or a glob matches none.
            ValueError: If a text is invalid UTF-8, damaged, empty or has lines of more than 16 MiB, if the sides have
                different numbers of files or lines, or an argument is out of range.
            OSError: If `cache_dir` cannot be written, or the disk is full.
        """
        if given := [name for name in ("bpe_dropout", "links") if kwargs.pop(name, None)]:
            raise ValueError(f"Expected no {given[0]} with token files, whose text is not read again. Use `from_text`.")
        if workers is not None and (not isinstance(workers, (int, np.integer)) or workers < 1):
            raise ValueError(f"Expected workers to be a whole number of 1 or more. Received: {workers!r}")
        paths = text_paths(source_path), text_paths(target_path)
        sides = encode_files(paths, (source_tokenizer, target_tokenizer), Path(cache_dir), workers)
        return cls(*sides, **kwargs)

    @classmethod
    def from_arrays(cls, source: Any, target: Sequence[Sequence[int]], **kwargs: Any) -> "ParallelDataset":
        """Pairs a source of any kind, such as images, frames of speech or series, with rows of target ids.

        Batch i is `({"encoder_inputs": source, "decoder_token_ids": (B, T)}, labels (B, T), weights (B, T))`, where
        the entries of a dict stand in the place of "encoder_inputs". Sources with a length axis go into buckets by it,
        and by the target's length. Zeros behind the end of one are padding: `keras.layers.Masking` makes its mask. Rows
        that only fill a batch repeat others, with weights of 0.

        Args:
            source: An array `(N, ...)`; or a list of N arrays `(S_i, ...)` that differ in length, which is padded with
                zeros; or a dict or tuple of these, whose length is that of the longest.
            target: N rows of ids without start and end.
            **kwargs: The other arguments of `ParallelDataset`.

        Raises:
            ValueError: If source and target, or the arrays of the source, have different numbers of rows, the rows of
                an array differ in more than their length, or an argument is out of range.

        Example:
            >>> images, frames = np.zeros((2, 8, 8)), [np.ones((5, 3)), np.ones((7, 3))]
            >>> captions = [[4, 5], [6]]
            >>> data = keras_attn.ParallelDataset.from_arrays((images, frames), captions, batch_size=2)
            >>> inputs, labels, weights = data[0]
            >>> [array.shape for array in inputs["encoder_inputs"]], inputs["decoder_token_ids"].shape
            ([(2, 8, 8), (2, 7, 3)], (2, 3))
        """
        if isinstance(source, dict) and (taken := source.keys() & {"decoder_token_ids", "alignments"}):
            raise ValueError(
                f"Expected names of inputs of the source. Received: {', '.join(sorted(taken))}, the target's"
            )
        return cls(ArrayStore(source), target, **kwargs)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
        bucket, rows, pass_number = self._order[index]
        size, source_length, target_length = self._plan.shapes[bucket]
        inputs = self._sides[0].inputs(rows, (size, source_length), pass_number)
        labels = self._sides[1].pad(rows, (size, target_length), pass_number)  # (B, T)
        ids = self._sides[1].special_ids
        inputs["decoder_token_ids"] = decoder_inputs(labels, ids)  # (B, T)
        weights = (labels != ids.pad).astype(np.float32)  # (B, T)
        if self._alignment_targets is not None:
            inputs["alignments"] = self._alignment_targets.of_batch(
                rows, inputs["encoder_token_ids"], labels
            )  # (B, T, S)
        return inputs, labels, weights

    def on_epoch_end(self) -> None:
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Sets the order of the batches to that of `epoch`, 0 or more: a pure function of the seed and `epoch`."""
        # One assignment: on TensorFlow a prefetching thread may be reading the old order.
        self._order = self._batch_order.of_epoch(epoch)
        self.epoch = epoch

    @property
    def largest_token_ids(self) -> tuple[int, int]:
        """The largest id of each side, which a model compares with the sizes of its vocabularies."""
        return self._sides[0].largest_id, self._sides[1].largest_id

    def report(self) -> dict[str, int | float]:
        """Returns statistics of the data, over all shards.

        Returns:
            dict with the numbers of pairs: `pairs` (kept), `dropped_blank`, `dropped_too_long` and `truncated`;
            `source_tokens` and `target_tokens`, numbers of real positions, ends included; `padding`, the share of all
            positions of both sides that are padding; and `batches`, the number of batches of one shard.
        """
        return dict(self._plan.report)


_LEAST = {"max_length": 2, "batches_per_epoch": 1, "curriculum_epochs": 0, "seed": 0}  # 2: a token and the end


def _check_options(
    optional: dict[str, int | None], on_too_long: str, curriculum_epochs: int, seed: int, shard: tuple[int, int] | str
) -> None:
    """Raises ValueError for arguments of `ParallelDataset` that are out of range."""
    batch_size, tokens_per_batch, *_ = optional.values()
    given = {name: number for name, number in optional.items() if number is not None}
    for name, number in (given | {"curriculum_epochs": curriculum_epochs, "seed": seed}).items():
        if not isinstance(number, (int, np.integer)):
            raise ValueError(f"Expected {name} to be a whole number. Received: {number!r}")
        if number < _LEAST.get(name, number):
            raise ValueError(f"Expected {name} of {_LEAST[name]} or more. Received: {number}")
    if (batch_size is None) == (tokens_per_batch is None) or (batch_size or tokens_per_batch or 0) < 1:
        raise ValueError(
            f"Expected either batch_size or tokens_per_batch, of 1 or more. Received: batch_size={batch_size} "
            f"and tokens_per_batch={tokens_per_batch}"
        )
    if on_too_long not in ("drop", "truncate"):
        raise ValueError(f"Expected on_too_long to be 'drop' or 'truncate'. Received: {on_too_long!r}")
    is_pair = (
        isinstance(shard, (tuple, list)) and len(shard) == 2 and all(isinstance(n, (int, np.integer)) for n in shard)
    )
    if not is_pair or not 0 <= shard[0] < shard[1]:
        raise ValueError(f"Expected shard 'auto', or (index, count) with 0 <= index < count. Received: {shard!r}")


def teacher_forcing(
    rows: Sequence[Sequence[int]], special_ids: SpecialIds = DEFAULT_IDS
) -> tuple[np.ndarray, np.ndarray]:
    """Makes decoder inputs and labels of target rows, padded to the longest.

    Args:
        rows: Of target ids, without start and end.
        special_ids: Those of the target's vocabulary, with a start.

    Returns:
        `(decoder_token_ids, labels)`, int32 `(N, T)`: the start id and the row, and the row and the end id. The weights
        of the loss are 1 where a label is not the pad id.

    Raises:
        ValueError: If a row has pad, start or end ids, or there is no start id.

    Example:
        >>> decoder_token_ids, labels = keras_attn.teacher_forcing([[7], [8, 9]])
        >>> decoder_token_ids.tolist(), labels.tolist()
        ([[2, 7, 0], [2, 8, 9]], [[7, 3, 0], [8, 9, 3]])
    """
    special_ids.check_start()
    store = TokenStore.from_lists(rows, special_ids)
    length = int(store.lengths(0, len(store)).max(initial=0)) + store.ends
    labels = store.pad(np.arange(len(store)), (len(store), length))  # (N, T)
    return decoder_inputs(labels, special_ids), labels


def decoder_inputs(labels: np.ndarray, special_ids: SpecialIds) -> np.ndarray:
    """Returns labels (B, T), moved one place to the right behind the start id, without the end id."""
    shifted, end = labels[:, :-1], special_ids.end  # (B, T - 1)
    decoder = np.full_like(labels, special_ids.start)  # (B, T)
    decoder[:, 1:] = shifted if end is None else np.where(shifted == end, special_ids.pad, shifted)
    return decoder
