"""Fixtures that several folders share."""

from pathlib import Path

import pytest

from mkevolve.data.measurement import Clock, Environment

TESTS = Path(__file__).parent


@pytest.fixture
def environment() -> Environment:
    return Environment(Clock.MODEL, "h200", "", "2.13.0", "3.7.1", "ieee", "1", "1")


@pytest.fixture
def cases_dir() -> Path:
    return TESTS / "cases"
