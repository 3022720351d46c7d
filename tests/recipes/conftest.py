"""What the tests of the studies share."""

import pytest

from tests.recipes.small_study import InProcess


@pytest.fixture
def in_process(monkeypatch):
    """Runs the commands of a study in this process; returns a function of `InProcess`'s arguments."""
    from recipes.studies.study import Study  # late, for most tests here need no study

    def use(**options):
        work = InProcess(**options)
        monkeypatch.setattr(Study, "work", lambda self, chains: work(chains))
        return work

    return use
