"""The embedded corpus: the bytes that the published reports were measured on."""

import hashlib
import re

import pytest

from keras_attn.training import phrases

pytestmark = pytest.mark.once

# SHA-256 of each side, a line a sentence: of what the generator gave that the reports' models were trained on.
DIGESTS = {
    "train": (
        "5ee30f3d954c493abd01eceff848a93bb9ff8b29dd450ec8df3181afc8ad7ac4",
        "75d7268ad703fedbc780f264c92815a55f9955d5c48efc1d9496fb5306533a3e",
    ),
    "val": (
        "4c77f8af24400dc1ad25825f0da7081942b588d48eacc2cb09505b8452c05272",
        "17f29f101d932897b41e6c28e01aa90cf97b69491056ea5c2cee4a61c4568b40",
    ),
    "test": (
        "9f9972f284634ba1e7b3b45065a42d250db71accb68974b3fd517ddba0503934",
        "15db0c8fdcfd9e8462e26ba8d57d25011823364cfb57f1b2739237ec4ad15755",
    ),
    "lengths": (
        "0c873ac5238a8d2cd0242c719a53913fb3c5f2dc063058ceb957c450e0a30ed6",
        "fee0ae467b924d5727d1831cdb223338ce688ad0d2a0f05aca12a9a134b08e86",
    ),
}


@pytest.fixture(scope="module")
def splits():
    return phrases.splits()


def test_texts_are_those_of_the_reports(splits) -> None:
    text = {split: ["".join(f"{line}\n" for line in side) for side in sides] for split, sides in splits.items()}
    assert {
        split: tuple(hashlib.sha256(side.encode()).hexdigest() for side in sides) for split, sides in text.items()
    } == DIGESTS


def test_no_sentence_is_in_two_splits(splits) -> None:
    assert {split: len(sides[0]) for split, sides in splits.items()} == {
        "val": 1000,
        "test": 1000,
        "train": 20000,
        "lengths": 1200,
    }
    assert len({line for split in ("train", "val", "test") for line in splits[split][0]}) == 22000
    assert not set(splits["lengths"][0]) & {line for split in ("train", "val") for line in splits[split][0]}
    lengths = [len(line.split()) for line in splits["lengths"][0]]
    assert [sum(low <= n <= low + 9 for n in lengths) for low in range(1, 60, 10)] == [200] * 6


def test_held_out_words_are_trained_on(splits) -> None:
    words = lambda lines: {word for line in lines for word in re.findall(r"\w+", line)}  # noqa: E731
    for side in (0, 1):
        trained = words(splits["train"][side])
        assert len(words(splits["test"][side]) - trained) < 0.01 * len(trained)


def test_a_changed_file_is_refused(monkeypatch, tmp_path) -> None:
    path = tmp_path / phrases.PATH.name
    path.write_bytes(phrases.PATH.read_bytes()[:-1])
    monkeypatch.setattr(phrases, "PATH", path)
    with pytest.raises(ValueError, match=r"Expected .*phrases_en_fr\.tsv\.bz2 to have the SHA-256 .*\. Received: "):
        phrases.splits()
