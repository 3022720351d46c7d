"""The recorded configurations of tensorflow_addons that tests/layers leaves out."""

import pytest

from tests.fixtures.tfa_cases import KINDS, SEARCHES
from tests.layers import test_tfa_recorded as recorded

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("number", [n for n in range(len(KINDS)) if n not in recorded.CASES])
def test_outputs_alignments_states_and_gradients(number, monkeypatch):
    recorded.test_outputs_alignments_states_and_gradients(number, monkeypatch)


@pytest.mark.parametrize("number", [n for n in range(SEARCHES) if n not in recorded.SEARCHED])
def test_beam_search_with_the_norm_of_tfa(number):
    recorded.test_beam_search_with_the_norm_of_tfa(number)
