"""Lines that a service gets sooner or later: empty, endless, of all scripts and of none."""

import random
from collections.abc import Callable

GERMAN = "ein Mann Hund läuft über die Straße und spielt mit dem roten Ball , während zwei Frauen zusehen ."
OTHERS = "日本語テスト зима пришла שלום עולם مرحبا สวัสดี नमस्ते Ελλάδα 한국어 ქართული ⅧﬁǅİΣς áé"
WORDS, SCRIPTS = GERMAN.split(), OTHERS.split()
EMOJI = ["😀", "👩‍👩‍👧", "🇩🇪", "👍🏽", "❤️", "🏴‍☠️"]
CONTROLS = ["\x00", "\x07", "\x1b[31m", "\t", "\r", "\v", "\x85", "\u2028", "\u200b", "\u202e", "\ufeff", "\ufffd"]
INVALID = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x80"]
MARKUP = ["<pad>", "<unk>", "<s>", "</s>", "<0x41>", "▁", "▁▁", "{}", "%s", "\\", '"', "&lt;", "@@", "\\n"]


def lines(count: int = 1000, seed: int = 0) -> list[bytes]:
    """`count` lines without a line break, every kind in turn; the same for the same seed."""
    draw = random.Random(seed)

    def some(parts: list, most: int) -> list:
        return [draw.choice(parts) for _ in range(draw.randint(1, most))]

    def words(most: int) -> str:
        return " ".join(some(WORDS, most))

    def strewn(parts: list[str]) -> str:
        mixed = some(WORDS, 8) + some(parts, 5)
        draw.shuffle(mixed)
        return draw.choice(["", " "]).join(mixed)

    kinds: list[Callable[[], str | bytes]] = [
        lambda: "",
        lambda: draw.choice([" ", "\t", "\u3000", "\u00a0"]) * draw.randint(1, 9),
        lambda: draw.choice([*"aZß7.-,", "語", "😀", "\u0301"]),
        lambda: words(20),
        lambda: words(20).upper(),
        lambda: "".join(some(WORDS, 9)),
        lambda: " ".join([draw.choice(WORDS)] * draw.randint(2, 60)),
        lambda: draw.choice(["!", "?", "...", "a", "ß"]) * draw.randint(2, 200),
        lambda: " ".join(str(draw.randint(0, 10 ** draw.randint(1, 18))) for _ in range(draw.randint(1, 9))),
        lambda: strewn(EMOJI),
        lambda: strewn(CONTROLS),
        lambda: strewn(SCRIPTS),
        lambda: strewn(MARKUP),
        lambda: "  " + "   ".join(some(WORDS, 9)) + "  ",
        lambda: b" ".join([words(5).encode(), *some(INVALID, 3), words(5).encode()]),
        lambda: draw.randbytes(draw.randint(1, 40)).replace(b"\n", b""),
    ]
    found = [kind() for _ in range(-(-count // len(kinds))) for kind in kinds][:count]
    found = [line if isinstance(line, bytes) else line.encode() for line in found]
    for place, length in enumerate((2000, 500, 500, 500, 500)):  # few, for they are dear
        found[(place * count) // 5] = " ".join(draw.choice(WORDS) for _ in range(length)).encode()
    return found
