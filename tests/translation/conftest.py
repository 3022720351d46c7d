"""A translator with the random weights of a small model."""

import keras
import pytest

from tests.translation.test_scoring import random_translator


@pytest.fixture(scope="session")
def translator():
    return random_translator()


@pytest.fixture
def traces_soon(monkeypatch):
    """Loops on torch are traced after a few steps."""
    if keras.backend.backend() == "torch":
        monkeypatch.setattr("keras_attn.backend.torch_loops._CALLS_BEFORE_TRACE", 5)
