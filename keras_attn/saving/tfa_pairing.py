"""Which part of a file belongs to which part of ours."""

import re
from collections.abc import Mapping
from typing import Any

from keras_attn.saving.tfa_stored import Part, Stored, StoredPart

_OPPOSITES = {"encoder": "decoder", "decoder": "encoder", "forward": "backward", "backward": "forward"}


def pair(
    parts: list[Part], found: list[StoredPart], stored: Stored, mapping: Mapping[str, Any]
) -> list[tuple[Part, StoredPart]]:
    """The part of the file for each of ours; see `from_tfa`.

    Raises:
        ValueError: if there is none, or more than one, or for unknown names in the mapping.
    """
    pairs = {part.name: _mapped(part, mapping.get(part.name), found, stored) for part in parts}
    if unknown := [name for name in mapping if name not in pairs]:
        raise ValueError(f"Expected the names in `mapping` among {sorted(pairs)}. Received: {unknown[0]!r}")
    for part in parts:
        if pairs[part.name] is not None:
            _check_fit(part, pairs[part.name])
    progress = True
    while progress:
        free = _free(found, pairs)
        choices = {part.name: _choices(part, free) for part in parts if pairs[part.name] is None}
        wanted = [own[0].name for own in choices.values() if len(own) == 1]
        sure = {name: own[0] for name, own in choices.items() if len(own) == 1 and wanted.count(own[0].name) == 1}
        sure = sure or _stack(choices)
        pairs |= sure
        progress = bool(sure)
    for part in parts:
        if pairs[part.name] is None:
            names = [each.name for each in choices[part.name]]
            rivals = [name for name, own in choices.items() if [each.name for each in own] == names]
            _refuse(part, choices[part.name], rivals, _free(found, pairs))
    return [(part, pairs[part.name]) for part in parts]


def _free(found: list[StoredPart], pairs: dict[str, StoredPart | None]) -> list[StoredPart]:
    used = {source for own in pairs.values() if own is not None for source in own.sources}
    return [own for own in found if not used & set(own.sources)]


def _choices(part: Part, free: list[StoredPart]) -> list[StoredPart]:
    """Those that fit, whose names say nothing against it, and of these the ones whose names say most for it."""
    fitting = [own for own in free if _fits(part, own) and not _contradict(part, own)]
    most = max((len(part.words & own.words) for own in fitting), default=0)
    return [own for own in fitting if len(part.words & own.words) == most]


def _contradict(part: Part, own: StoredPart) -> bool:
    opposite = any(_OPPOSITES.get(word) in own.words for word in part.words)
    return opposite or ("attention layer" in own.words and "attention layer" not in part.words)


def _shapes(part: Part | StoredPart) -> dict[str, tuple[int, ...]]:
    weights = part.weights if isinstance(part, Part) else part.arrays
    return {role: tuple(weight.shape) for role, weight in sorted(weights.items())}


def _fits(part: Part, own: StoredPart) -> bool:
    return _shapes(part) == _shapes(own)


def _stack(choices: dict[str, list[StoredPart]]) -> dict[str, StoredPart]:
    """The cells of a stack that have one shape, by their numbers, if the file has as many under one name."""
    for name, own in choices.items():
        names = [each.name for each in own]
        alike = [other for other, theirs in choices.items() if [each.name for each in theirs] == names]
        stack = [other for other in alike if _unnumbered(other) == _unnumbered(name)]
        same_name = len({_unnumbered(each.name) for each in own}) == 1
        if len(stack) == len(own) > 1 and same_name:
            numbered = sorted(own, key=lambda each: _numbers(each.name))
            return dict(zip(sorted(stack, key=_numbers), numbered, strict=True))
    return {}


def _unnumbered(name: str) -> str:
    return re.sub(r"_?\d+", "", name)


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)] or [-1]  # Keras counts "lstm", "lstm_1"


def _mapped(part: Part, given, found: list[StoredPart], stored: Stored) -> StoredPart | None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        if missing := [path for path in given.values() if path not in stored]:
            raise ValueError(f"Expected weights of the file in `mapping`: {sorted(stored)}. Received: {missing[0]!r}")
        arrays = {role: stored[path].value for role, path in given.items()}
        return StoredPart(", ".join(given.values()), frozenset(), arrays, list(given.values()))
    own = [each for each in found if each.name == given]
    if not own:
        names = sorted(each.name for each in found)
        raise ValueError(f"Expected a part of the file in `mapping`: one of {names}. Received: {given!r}")
    return own[0]


def _check_fit(part: Part, own: StoredPart) -> None:
    if not _fits(part, own):
        raise ValueError(
            f"Expected weights for {part.name!r} of {_text(part)}. Received: {own.name!r} with {_text(own)}"
            f"{_advice(part, own)}"
        )


def _refuse(part: Part, choices: list[StoredPart], rivals: list[str], free: list[StoredPart]) -> None:
    if len(choices) == 1:
        raise ValueError(
            f"Expected parts of the file for {', '.join(rivals)}. Received one that fits each of them: "
            f"{choices[0].name!r}."
        )
    if choices:
        names = [each.name for each in choices]
        raise ValueError(
            f"Expected one part of the file for {part.name!r}. Received {len(names)} that fit: {', '.join(names)}. Say "
            f"which, for this and what is like it: mapping={{{part.name!r}: {names[0]!r}, ...}}."
        )
    roles = set(part.weights)
    near = sorted(free, key=lambda each: (_contradict(part, each), len(roles ^ set(each.arrays))))
    near = [each for each in near if roles & set(each.arrays)][:3]
    received = "; ".join(f"{each.name!r} with {_text(each)}{_advice(part, each)}" for each in near)
    others = ", ".join(repr(each.name) for each in free[:8]) or "nothing that has no place yet"
    raise ValueError(
        f"Expected a part of the file for {part.name!r}, with {_text(part)}. Received none; what is nearest: "
        f"{received or others}."
    )


def _text(part: Part | StoredPart) -> str:
    return ", ".join(f"{role} {shape}" for role, shape in _shapes(part).items())


def _advice(part: Part, own: StoredPart) -> str:
    """What to write where only a setting differs."""
    ours, theirs = _shapes(part), _shapes(own)
    has_biases = ours.keys() == theirs.keys() and {"recurrent_kernel", "bias"} <= ours.keys()
    if has_biases and len(ours["bias"]) != len(theirs["bias"]):
        return f" (that of `GRUCell(..., reset_after={len(theirs['bias']) == 2})`)"
    if "memory_layer/kernel" in ours and ("attention_g" in ours) != ("attention_g" in theirs):
        option = "normalize" if "query_layer/kernel" in theirs else "use_scale"
        return f" (made with {option}={'attention_g' in theirs})"
    return ""
