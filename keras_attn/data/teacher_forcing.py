"""The inputs and labels of a teacher-forced decoder, from rows of target ids."""

from collections.abc import Sequence

import numpy as np

from keras_attn.data.token_store import TokenStore
from keras_attn.text import DEFAULT_IDS, SpecialIds


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
