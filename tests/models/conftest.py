from pathlib import Path

import pytest


@pytest.fixture
def conf_model():
    return Path(__file__).parents[2] / "conf" / "model"
