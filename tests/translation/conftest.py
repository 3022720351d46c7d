"""A translator with the committed weights of a small model."""

import pytest

from tests.translation.test_scoring import golden_translator


@pytest.fixture(scope="session")
def translator():
    return golden_translator()
