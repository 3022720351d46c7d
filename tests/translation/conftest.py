"""A translator with the random weights of a small model."""

import pytest

from tests.translation.test_scoring import random_translator


@pytest.fixture(scope="session")
def translator():
    return random_translator()
