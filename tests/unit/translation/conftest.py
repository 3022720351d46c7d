"""The translator of the translation tests."""

import pytest

from tests.translation.test_scoring import golden_translator


@pytest.fixture(scope="session")
def translator():
    return golden_translator()
