"""The pictures of the guides that show what the shipped preset does with a text: its beam, and pieces of its words."""

import numpy as np

from keras_attn.plots.plot_style import BLUE, GREY, INK
from recipes.pages.diagrams import WIDTH, Diagram

_LEFT, _RIGHT = 6, WIDTH - 6


def beam_steps(translator, sentence: str, beam_size: int) -> tuple[list[dict[tuple, float]], list[tuple]]:
    """What a beam search does for a sentence.

    Args:
        translator: A `keras_attn.Translator`.
        sentence: The source.
        beam_size: K.

    Returns:
        For each step the hypotheses that are kept, as tuples of tokens, with their log-probabilities, best first; and
        the finished ones as tokens and score, best first.
    """
    from keras import ops, tree

    from keras_attn.runtime import beam as numpy_search

    (found,) = translator.generate([sentence], beam_size=beam_size, n_best=beam_size)
    model, vocabulary = translator.model, translator.target_tokenizer.vocabulary
    memory, first = model.encode(ops.convert_to_tensor([found.source_token_ids], dtype="int32"))
    kept, count = [], len(tree.flatten(first))

    def arrays(state) -> dict[str, np.ndarray]:
        return {str(n): np.array(ops.convert_to_numpy(value)) for n, value in enumerate(tree.flatten(state))}

    def step(token_ids, _, state):
        # What a hypothesis was is a part of its state, so that the search puts it in order, too.
        path = np.concatenate([state["path"], token_ids[:, None]], axis=1)
        gained = np.take_along_axis(state["next"], token_ids[:, None], axis=1)[:, 0] if path.shape[1] > 1 else 0.0
        total = state["total"] + gained
        kept.append({tuple(vocabulary[i] for i in row[1:]): float(one) for row, one in zip(path, total, strict=True)})
        own = tree.pack_sequence_as(first, [ops.convert_to_tensor(state[str(n)]) for n in range(count)])
        repeated = tree.map_structure(lambda value: ops.repeat(value, len(token_ids), axis=0), memory)
        logits, after, alignment = model.step(ops.convert_to_tensor(token_ids, dtype="int32"), repeated, own)
        log_probs = np.array(ops.convert_to_numpy(ops.log_softmax(ops.cast(logits, "float32"))))
        record = {"path": path, "total": total, "next": log_probs}
        return np.array(ops.convert_to_numpy(logits)), arrays(after) | record, np.array(ops.convert_to_numpy(alignment))

    record = {"path": np.zeros((1, 0), "int32"), "total": np.zeros(1), "next": np.zeros((1, len(vocabulary)))}
    mask = np.array(ops.convert_to_numpy(memory["mask"]))
    limit = int(translator.max_length_ratio * mask.shape[1] + translator.max_length_constant)
    options = {"max_length": limit, "special_ids": model.target_special_ids}
    numpy_search.beam_search(
        step, {"mask": mask}, arrays(first) | record, beam_size=beam_size, n_best=beam_size, **options
    )
    finished = [(one.tokens, one.score) for one in found.n_best]
    return kept[1:], finished


def beam(steps: list[dict[tuple, float]], finished: list[tuple]) -> Diagram:
    """A row for each step, the best hypothesis on the left: each is its last token and its log-probability.

    Args:
        steps, finished: From `beam_steps`.
    """
    width, height, gap = 96, 32, 12
    diagram = Diagram(26 + (height + gap) * len(steps))
    column = (_RIGHT - _LEFT - width) / max(1, len(steps[0]) - 1)
    place = {
        path: (_LEFT + column * n, 22 + (height + gap) * row)
        for row, paths in enumerate(steps)
        for n, path in enumerate(paths)
    }
    scores = {tokens[:-1]: score for tokens, score in finished}
    best = finished[0][0]
    diagram.text(_LEFT + width / 2, 10, "best", size=10.5)
    diagram.text(_RIGHT - width / 2, 10, f"{len(steps[0])}rd best" if len(steps[0]) == 3 else "last", size=10.5)
    lines = {True: [], False: []}  # of the best hypothesis, and of the others
    for path, (x, y) in place.items():
        if parent := place.get(path[:-1]):
            both_ends = (parent[0] + width / 2, parent[1] + height), (x + width / 2, y)
            lines[path == best[: len(path)]] += [*both_ends, (np.nan, np.nan)]
    diagram.lines(lines[False], color=GREY, linewidth=1.0)
    diagram.lines(lines[True], color=BLUE, linewidth=2.2)
    for path, (x, y) in place.items():
        log_prob = steps[len(path) - 1][path]
        goes_on = any(other[: len(path)] == path for other in place if len(other) == len(path) + 1)
        token = f"“{path[-1].replace('▁', ' ').strip()}”"
        number = f"{log_prob:.2f}".replace("-", "−")
        if path in scores:
            number = f"ends: {scores[path]:.2f}".replace("-", "−")
        elif not goes_on:
            number += ", dropped"
        if goes_on or path in scores:
            diagram.box(x, y, width, height, token, number, look="chosen" if path == best[: len(path)] else "plain")
        else:
            diagram.text(x + width / 2, y + 9, token, color=INK)
            diagram.text(x + width / 2, y + 23, number, size=10.5)
    return diagram


def pieces(rows: list[tuple[str, list[str]]], plain: list[str]) -> Diagram:
    """The pieces of one sentence, cut in several ways; those that the plain cut lacks are grey.

    Args:
        rows: A title, and pieces.
        plain: The pieces of the plain cut.
    """
    diagram = Diagram(4 + 44 * len(rows))
    for n, (title, own) in enumerate(rows):
        y = 4 + 44 * n
        diagram.text(_LEFT, y + 8, title, ha="left")
        row(diagram, y + 18, own, {piece for piece in own if piece not in plain})
    return diagram


def row(diagram: Diagram, y: float, own: list[str], grey: set[str]) -> None:
    """A box for each piece."""
    x, letter = _LEFT, 6.0
    for piece in own:
        width = letter * len(piece) + 6
        diagram.box(x, y, width, 19, f"`{piece}`", shade=piece in grey)
        x += width + 2


def extension(word: str, before: list[str], after: list[str], sizes: tuple[int, int], added: list[str]) -> Diagram:
    """What more vocabulary changes: the pieces of a word with a new letter, and the rows of the embedding.

    Args:
        word: With a letter that the vocabulary has no piece for.
        before, after: Its pieces.
        sizes: Of the vocabulary, before and after.
        added: The new entries.
    """
    diagram = Diagram(290)
    for y, title, own in ((4, f"“{word}” before", before), (50, f"“{word}” after", after)):
        diagram.text(_LEFT, y + 8, title, ha="left")
        row(diagram, y + 18, own, {piece for piece in own if piece not in before or piece.startswith("<0x")})
    width = 150
    diagram.text(_LEFT, 110, "the embedding: a row for each entry", ha="left", weight="bold")
    diagram.box(_LEFT, 122, width, 90, f"{sizes[0]:,} rows", "as they were,", "with their ids")
    diagram.box(_LEFT, 212, width, 60, f"{sizes[1] - sizes[0]} new rows", " ".join(added), look="chosen")
    diagram.arrow((_LEFT + width, 167), (_LEFT + width, 242), bend=-0.9)
    diagram.text(_LEFT + width + 44, 192, "each begins as", ha="left")
    diagram.text(_LEFT + width + 44, 207, "the mean of the", ha="left")
    diagram.text(_LEFT + width + 44, 222, "old rows", ha="left")
    return diagram
