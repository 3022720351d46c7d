"""SearchOptions: one place for the options of a search, which reach the search functions by their names."""

import dataclasses
import inspect

import numpy as np
import pytest

from keras_attn.search import (
    Limits,
    SampleOptions,
    SearchOptions,
    beam_search,
    greedy_search,
    length_norm,
    sample,
)
from keras_attn.search.options import NORMALIZATIONS

# What the engine computes for the function from a sentence or from the tokenizer.
COMPUTED = {
    "special_ids",
    "max_length",
    "row_max_length",
    "row_min_length",
    "forced_prefix",
    "banned_token_ids",
    "return_alignments",
    "logits_processor",
}


@pytest.mark.parametrize(
    ("options", "search", "computed"),
    [
        (SearchOptions(), beam_search, COMPUTED | {"shortlist"}),
        (SearchOptions(), greedy_search, COMPUTED | {"shortlist"}),
        (SampleOptions(), sample, COMPUTED | {"seed", "row_ids"}),
    ],
)
def test_every_keyword_of_a_search_is_an_option_or_computed(options, search, computed):
    parameters = inspect.signature(search).parameters.values()
    keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    arguments = options.arguments_of(search)
    assert arguments.keys() == keywords.keys() - computed
    assert arguments == {name: keywords[name] for name in arguments}  # the same defaults


@pytest.mark.parametrize("options", [SearchOptions, SampleOptions])
def test_every_option_has_help_and_a_range_or_choices(options):
    for field in dataclasses.fields(options):
        metadata = field.metadata
        assert metadata["help"] == metadata["help"].strip(" .")
        assert len(metadata.keys() & {"range", "choices", "const"}) == 1, field.name
        if "range" in metadata:
            for bound in metadata["range"]:
                options(**{"beam_size": 1000} if field.name == "n_best" else {}, **{field.name: bound})
        for choice in metadata.get("choices", ()):
            options(**{field.name: choice})


def test_normalizations_are_those_of_length_norm():
    for name in NORMALIZATIONS:
        assert length_norm(name, 1.0, np.ones(1)) == 1
    with pytest.raises(ValueError, match=f"one of {sorted(NORMALIZATIONS)}".replace("[", r"\[").replace("]", r"\]")):
        length_norm("wu", 1.0, np.ones(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "Expected beam_size to be a whole number of at least 1. Received: beam_size=0"),
        ({"beam_size": True}, "Received: beam_size=True"),
        ({"n_best": 6}, "Expected n_best to be at most beam_size=5. Received: n_best=6"),
        (
            {"length_penalty": -0.1},
            "Expected length_penalty to be a number of at least 0. Received: length_penalty=-0.1",
        ),
        ({"length_penalty": float("nan")}, "Received: length_penalty=nan"),
        ({"coverage_penalty": 1e39}, r"of at least 0 and at most 1e\+30. Received: coverage_penalty=1e\+39"),
        ({"normalization": "wu"}, "Expected normalization to be one of .*'gnmt'.* Received: normalization='wu'"),
        ({"max_length_ratio": 0}, "Expected max_length_ratio to be a number above 0. Received: max_length_ratio=0"),
        ({"max_length": 2.5}, "Received: max_length=2.5"),
        ({"min_length": 3, "max_length": 2}, "Expected min_length to be at most max_length=2. Received: min_length=3"),
        ({"banned_tokens": "<unk>"}, "a list of tokens or ids. Received one string: banned_tokens='<unk>'"),
        ({"no_repeat_ngram_size": -1}, "whole number of at least 0. Received: no_repeat_ngram_size=-1"),
        ({"early_stopping": 1}, "Expected early_stopping to be True or False. Received: early_stopping=1"),
        (
            {"beam": 3, "best": 1},
            "Expected search options among: .*beam_size, .*. Received: beam .did you mean 'beam_size'",
        ),
        ({"halvings": 1}, "Received: halvings"),
    ],
)
def test_values_out_of_range_and_unknown_names_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SearchOptions.from_keywords(options)


def test_options_are_frozen_and_given_by_name():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SearchOptions().beam_size = 3
    with pytest.raises(TypeError):
        SearchOptions(5)


def test_a_beam_of_one_is_greedy_without_coverage():
    assert SearchOptions(beam_size=1).is_greedy
    assert not SearchOptions(beam_size=1, coverage_penalty=0.1).is_greedy
    assert not SearchOptions(beam_size=2).is_greedy


def test_sizes_of_numpy_are_whole_numbers():
    assert SearchOptions(beam_size=np.int64(3), max_length=np.int32(4)).beam_size == 3
    assert Limits(max_length=np.int32(4)).longest(9) == 4
    assert type(SearchOptions(max_length=np.int64(3)).max_length) is int


def test_no_length_is_above_100_000():
    limits = Limits(max_length_ratio=1e308, min_length_ratio=1e308)
    assert limits.longest(10**6) == limits.shortest(10**6) == 100_000
