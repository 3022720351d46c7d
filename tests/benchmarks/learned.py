"""What three parts of the library learn that a plain model does not: made-up languages, three seeds.

    python -m tests.benchmarks.learned monotonic_attention docs/monotonic_attention.json
    python -m tests.benchmarks.learned scheduled_sampling docs/scheduled_sampling.json
    python -m tests.benchmarks.learned pointer_generator docs/pointer_generator.json

All systems of a study are the same RNNsearch, trained for as many updates on the same sentences. The report is JSON,
rewritten after each training.

monotonic_attention: sentences of 60 words, drawn from 10, so that each occurs six times: what a word is does not say
where it stands. Each is translated by its own, but two of the ten become two words, and one becomes none: nor does the
number of the step say where. Training has first 7 to 15 words, then 15 to 30, then 30 to 60. Monotonic attention reads
one word a step in hard mode (Raffel 2017, section 2.2), found by going on from where the last step stood. Hard mode
reads the sign of the score alone, so the probabilities that are learned must be near 0 and 1: noise of deviation 4
(section 2.5; the third system has 1). With a bias of 0 p is at first about 1/2, and a step goes on by one word. The
score is the share of target tokens that are right at their place.

scheduled_sampling: a target is a chain of 20 states: each follows from the last by a fixed permutation, or, one time in
ten, is any state. The source has a word for each state, which is wrong every other time. A teacher-forced model learns
to follow the chain, and in translation one jump puts it off the chain for good; one that reads its own states in
training learns to weigh all words. The best possible share of right states is that of the forward-backward algorithm.

pointer_generator: "n12 calls n7 ." becomes "n7 is called by n12 , says n12 .". The names of the test are not those of
training, and the vocabulary has the commonest of those alone: to write a name of the test a model must copy it. The
plain model is also scored with its unknown words replaced by the source words that it attends to most (Jean et al.
2015).
"""

import argparse
import json
import time
from pathlib import Path

import keras
import numpy as np

from keras_attn import (
    BahdanauAttention,
    BahdanauMonotonicAttention,
    ParallelDataset,
    Tokenizer,
    Translator,
    teacher_forcing,
)
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch, SearchModel
from keras_attn.search import greedy_search

FIRST_ID = 4
WORDS, DOUBLED, SILENT = 10, (0, 1), (2,)  # of monotonic_attention: the words that become two, and none
STAGES, LENGTH = ((15, 500), (30, 500), (60, 1200)), 60  # the longest sentences, and updates
STATES, CHAIN, JUMP, WRONG = 12, 20, 0.1, 0.5  # of scheduled_sampling
VERBS = {"calls": "called", "sees": "seen", "likes": "liked", "helps": "helped", "asks": "asked"}


def greedy(model: RNNSearch, source: np.ndarray, max_length: int) -> np.ndarray:
    """The ids `(B, T)` that greedy search finds, compiled anew."""
    found = SearchModel(model, greedy_search, max_length).predict_on_batch({"encoder_token_ids": source})
    return found["token_ids"][:, 0]


def compiled(model: RNNSearch, learning_rate) -> RNNSearch:
    """The model with Adam and a cross-entropy."""
    optimizer = keras.optimizers.Adam(learning_rate, global_clipnorm=1.0)
    model.compile(optimizer, SmoothedCrossentropy(0.0))
    return model


def batches(sources, targets) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs and labels of rows of ids."""
    given, labels = teacher_forcing(targets)
    return {"encoder_token_ids": teacher_forcing(sources)[1], "decoder_token_ids": given}, labels


def monotonic_sentences(count: int, shortest: int, longest: int, rng) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs and labels of so many sentences."""
    sources, targets = [], []
    for length in rng.integers(shortest, longest + 1, size=count):
        words = rng.integers(WORDS, size=length)
        sources.append(words + FIRST_ID)
        targets.append([])
        for word in words:
            if word not in SILENT:
                targets[-1].append(FIRST_ID + word)
            if word in DOUBLED:
                targets[-1].append(FIRST_ID + WORDS + word)
    return batches(sources, targets)


def monotonic_attention(seed: int):
    """Yields a row for each system."""
    options = {"normalize": True, "mode": "recursive", "inference_mode": "hard"}
    systems = {
        "monotonic": lambda: BahdanauMonotonicAttention(32, sigmoid_noise=4.0, **options),
        "softmax": lambda: BahdanauAttention(32),
        "monotonic, noise 1": lambda: BahdanauMonotonicAttention(32, sigmoid_noise=1.0, **options),
    }
    sizes = {"units": 48, "embedding_size": 24, "readout_size": 48, "decoder_units": 64}
    for name, attention in systems.items():
        keras.utils.set_random_seed(seed)
        rng, test_rng = (np.random.default_rng([seed, i]) for i in range(2))
        vocabularies = FIRST_ID + WORDS, FIRST_ID + WORDS + len(DOUBLED)
        model = RNNSearch(*vocabularies, **sizes, attention=attention(), initializer="glorot_uniform")
        total = sum(updates for _, updates in STAGES)
        compiled(model, keras.optimizers.schedules.CosineDecay(5e-3, total, alpha=0.02))
        started = time.perf_counter()
        for longest, updates in STAGES:
            inputs, target = monotonic_sentences(updates * 32, longest // 2, longest, rng)
            model.fit(inputs, target, sample_weight=(target > 0).astype("float32"), batch_size=32, verbose=0)
        row = {"system": name, "updates": total, "training_seconds": round(time.perf_counter() - started, 1)}
        inputs, target = monotonic_sentences(200, LENGTH, LENGTH, test_rng)

        def right(model=model, source=inputs["encoder_token_ids"], target=target) -> tuple[float, float]:
            found = greedy(model, source, target.shape[1])
            right, real = found == target, target > 0
            return round(float(right[real].mean()), 4), round(float((right | ~real).all(axis=1).mean()), 4)

        row["right_tokens"], row["right_sentences"] = right()
        if name != "softmax":
            model.decoder.attentions[0].inference_mode = None
            row["right_tokens_in_expectation"] = right()[0]
        yield row


def chains(count: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """Words and states, each (count, CHAIN) from 0."""
    states = np.empty((count, CHAIN), "int64")
    states[:, 0] = rng.integers(STATES, size=count)
    for t in range(1, CHAIN):
        jumps = rng.random(count) < JUMP
        states[:, t] = np.where(jumps, rng.integers(STATES, size=count), (5 * states[:, t - 1] + 1) % STATES)
    wrong = rng.random(states.shape) < WRONG
    return np.where(wrong, rng.integers(STATES, size=states.shape), states), states


def best_possible(words: np.ndarray, states: np.ndarray) -> float:
    """The share of right states of the most probable state at each step, given all words and the chain itself."""
    follow = np.full((STATES, STATES), JUMP / STATES)
    follow[np.arange(STATES), (5 * np.arange(STATES) + 1) % STATES] += 1 - JUMP
    seen = np.full((STATES, STATES), WRONG / STATES) + (1 - WRONG) * np.eye(STATES)
    likelihood = seen[:, words].transpose(1, 2, 0)  # (B, T, states)
    forward, backward = likelihood.copy(), np.ones_like(likelihood)
    for t in range(1, CHAIN):
        forward[:, t] *= forward[:, t - 1] @ follow
        forward[:, t] /= forward[:, t].sum(-1, keepdims=True)
    for t in reversed(range(CHAIN - 1)):
        backward[:, t] = (backward[:, t + 1] * likelihood[:, t + 1]) @ follow.T
        backward[:, t] /= backward[:, t].sum(-1, keepdims=True)
    return float(((forward * backward).argmax(-1) == states).mean())


def scheduled_sampling(seed: int, pairs: int = 4000, epochs: int = 14):
    """Yields a row for each system."""
    sizes = {"units": 32, "embedding_size": 24, "readout_size": 48, "attention_units": 32, "decoder_units": 48}
    words, states = chains(pairs, np.random.default_rng([seed, 0]))
    test_words, test_states = chains(1000, np.random.default_rng([seed, 1]))
    for name, sampling in (("teacher forcing", None), ("scheduled sampling", "inverse_sigmoid,k=40,seed=0")):
        keras.utils.set_random_seed(seed)
        vocabulary, updates = FIRST_ID + STATES, epochs * -(-pairs // 64)
        model = RNNSearch(vocabulary, vocabulary, **sizes, initializer="glorot_uniform", scheduled_sampling=sampling)
        compiled(model, keras.optimizers.schedules.CosineDecay(5e-3, updates))
        inputs, target = batches(words + FIRST_ID, states + FIRST_ID)
        test, _ = batches(test_words + FIRST_ID, test_states + FIRST_ID)
        started = time.perf_counter()
        model.fit(inputs, target, batch_size=64, epochs=epochs, verbose=0)
        row = {"system": name, "scheduled_sampling": sampling, "updates": updates}
        row["training_seconds"] = round(time.perf_counter() - started, 1)
        found = greedy(model, test["encoder_token_ids"], CHAIN + 1)[:, :CHAIN]
        forced = model.predict(test, batch_size=250, verbose=0).argmax(-1)[:, :CHAIN]
        row["right_states"] = round(float((found - FIRST_ID == test_states).mean()), 4)
        row["right_states_with_true_history"] = round(float((forced - FIRST_ID == test_states).mean()), 4)
        yield row | {"best_possible": round(best_possible(test_words, test_states), 4)}


def named_sentences(count: int, letter: str, rng) -> tuple[list[str], list[str]]:
    """Pairs of lines, with 1,000 names that begin with a letter."""
    sources, targets = [], []
    for _ in range(count):
        actor, other = rng.choice([f"{letter}{i}" for i in range(1000)], 2, replace=False)
        verb = rng.choice(list(VERBS))
        sources.append(f"{actor} {verb} {other} .")
        targets.append(f"{other} is {VERBS[verb]} by {actor} , says {actor} .")
    return sources, targets


def pointer_generator(seed: int, epochs: int = 8):
    """Yields a row for each system."""
    sizes = {"units": 48, "embedding_size": 32, "readout_size": 48, "attention_units": 48, "decoder_units": 64}
    for pointer in (False, True):
        keras.utils.set_random_seed(seed)
        rng = np.random.default_rng(seed)
        training, test = named_sentences(6000, "n", rng), named_sentences(500, "m", rng)
        tokenizer = Tokenizer.train([line for side in training for line in side], level="word", vocabulary_size=100)
        size = tokenizer.vocabulary_size
        data = ParallelDataset.from_text(*training, tokenizer, tokenizer, batch_size=64, seed=seed, pointer=pointer)
        model = compiled(RNNSearch(size, size, **sizes, initializer="glorot_uniform", pointer=pointer), 3e-3)
        start = time.perf_counter()
        model.fit(data, epochs=epochs, verbose=0)
        seconds = round(time.perf_counter() - start, 1)
        translator = Translator(model, tokenizer, tokenizer)
        systems = {"pointer-generator": False} if pointer else {"plain": False, "plain, unknown words replaced": True}
        for name, replace in systems.items():
            found = [one.text for one in translator.generate(test[0], beam_size=4, replace_unknown=replace)]
            words = [
                (line.split()[i : i + 1] or [""])[0] == word
                for line, reference in zip(found, test[1], strict=True)
                for i, word in enumerate(reference.split())
                if word.startswith("m")
            ]
            right = float(np.mean([one == other for one, other in zip(found, test[1], strict=True)]))
            names = round(float(np.mean(words)), 4)
            yield {"system": name, "sentences": round(right, 4), "names": names, "training_seconds": seconds}


STUDIES = {one.__name__: one for one in (monotonic_attention, scheduled_sampling, pointer_generator)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("report", type=Path)
    options = parser.parse_args()
    command = f"python -m tests.benchmarks.learned {options.study} {options.report.as_posix()}"
    report = {"command": command, "backend": keras.backend.backend(), "keras": keras.__version__, "rows": []}
    for seed in range(3):
        for row in STUDIES[options.study](seed):
            report["rows"].append({"seed": seed} | row)
            print(json.dumps(report["rows"][-1]), flush=True)
            options.report.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
