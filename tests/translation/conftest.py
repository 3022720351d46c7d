"""A translator with the committed weights of a small model."""

import pytest

from keras_attn.translation import Translator
from tests.models import test_golden
from tests.translation.test_scoring import word_tokenizer


@pytest.fixture(scope="module")
def translator():
    tokenizers = word_tokenizer("s", test_golden.SOURCE), word_tokenizer("t", test_golden.TARGET)
    model = test_golden.model_with(test_golden.load()[2])
    return Translator(model, *tokenizers, max_length_ratio=1.5, max_length_constant=3)
