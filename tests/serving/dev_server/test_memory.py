"""The bound on large requests and answers."""

import pytest

from keras_attn.serving.dev_server.errors import RequestError
from keras_attn.serving.dev_server.memory import SMALL, Memory


def test_large_ones_are_counted_and_small_ones_pass():
    memory = Memory(1000)
    with memory.share() as one, memory.share() as other:
        one.hold(SMALL + 600)
        one.hold(SMALL + 500)  # a share does not shrink
        assert memory.used == 600
        other.hold(SMALL + 400)
        with memory.share() as third:
            third.hold(SMALL)
            with pytest.raises(RequestError, match="1,000 bytes of requests and answers and takes no more") as refused:
                third.hold(SMALL + 1)
        assert refused.value.status == 429
        assert memory.used == 1000
    assert memory.used == 0
