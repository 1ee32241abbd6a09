import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]  # also where the package is not installed
SCRIPT = Path(__file__).with_name("kernel_scenarios.py")


def scenarios() -> list[str]:
    tree = ast.parse(SCRIPT.read_text())
    listed = next(n for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "SCENARIOS")
    return [name.id for name in listed.value.elts]


def outcomes(arguments: list[str], interpret: str) -> dict[str, str]:
    run = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env={**os.environ, "TRITON_INTERPRET": interpret, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    rows = [line.partition("\t") for line in run.stdout.splitlines() if "\t" in line]
    return {name: outcome for name, _, outcome in rows}


@pytest.fixture(scope="module")
def interpreted() -> dict[str, str]:
    return outcomes([], "1")


@pytest.fixture(scope="module")
def on_a_device() -> dict[str, str]:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return outcomes(["cuda"], "0")


@pytest.mark.interp
@pytest.mark.parametrize("name", scenarios())
def test_interpreted(name, interpreted):
    assert interpreted.get(name) == "ok", interpreted.get(name, "did not run").replace(" | ", "\n")


@pytest.mark.gpu
@pytest.mark.parametrize("name", scenarios())
def test_on_a_device(name, on_a_device):
    assert on_a_device.get(name) == "ok", on_a_device.get(name, "did not run").replace(" | ", "\n")
