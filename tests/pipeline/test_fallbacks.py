"""Without a proposer, and with ops that no template covers, the run still ends in a right composition."""

from pathlib import Path

import pytest
from command import SHORT, mkevolve

CUMSUM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(torch.cumsum(torch.sin(x) * 2.0, dim=1))

def get_inputs():
    return [torch.randn(16, 40)]
"""


def test_no_proposer_writes_fallbacks_and_says_so(tmp_path: Path) -> None:
    result = mkevolve(tmp_path, "model=mlp", "proposer=none", "json=true")
    assert result.code == 0, result.err
    found = result.json()
    assert {s["implementation"] for s in found["slots"]} == {"eager"}
    assert all("proposer" in s["reason"] for s in found["slots"])
    assert found["evaluated"] == 0
    assert found["totals"]["us"] == found["totals"]["fallback_us"]


@pytest.mark.interp
def test_an_uncovered_op_is_named_and_its_neighbours_are_still_searched(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(CUMSUM)
    result = mkevolve(tmp_path, "model=file", "model.path=m.py", "json=true", *SHORT)
    assert result.code == 0, result.err
    slots = result.json()["slots"]
    stays = [s for s in slots if not s["own"]]
    assert stays
    assert all("cumsum" in s["reason"] for s in stays)
    assert any(s["own"] for s in slots)
