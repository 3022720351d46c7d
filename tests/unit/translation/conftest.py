"""The translator of the translation tests."""

from tests.translation.conftest import translator  # noqa: F401 (a fixture)
