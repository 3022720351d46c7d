"""The C program that loads a version as the stock server does."""

import shutil

import pytest

from tests.serving import loader


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not here to build the C program")
    return loader.build(tmp_path_factory.mktemp("loader"))
