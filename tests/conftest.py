"""Fixtures that several folders share."""

import random
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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow", choices=("none", "sample", "all"), default="none", help="which slow tests to run"
    )
    parser.addoption("--slow-seed", type=int, default=0, help="seed of --slow=sample")
    parser.addoption("--slow-sample", type=int, default=2, help="how many tests --slow=sample takes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = [item for item in items if item.get_closest_marker("slow")]
    which = config.getoption("--slow")
    taken = slow if which == "all" else []
    if which == "sample":
        rng = random.Random(config.getoption("--slow-seed"))
        taken = rng.sample(slow, min(config.getoption("--slow-sample"), len(slow)))
    skip_slow = pytest.mark.skip(reason="slow: make test-all runs it")
    skip_gpu = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if item in slow and item not in taken:
            item.add_marker(skip_slow)
        if item.get_closest_marker("gpu") and not _has_device():
            item.add_marker(skip_gpu)


def _has_device() -> bool:
    import torch

    return torch.cuda.is_available()
