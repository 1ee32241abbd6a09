from collections.abc import Iterator

import pytest

from mkevolve.backends.cpu import InterpreterBackend


@pytest.fixture(scope="session")
def backend() -> Iterator[InterpreterBackend]:
    """One backend for all tests: starting its zygotes takes seconds."""
    shared = InterpreterBackend()
    yield shared
    shared.close()
