import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.interp

SCRIPT = Path(__file__).with_name("interpreted_scenarios.py")


def scenarios() -> list[str]:
    tree = ast.parse(SCRIPT.read_text())
    listed = next(n for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "SCENARIOS")
    return [name.id for name in listed.value.elts]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    run = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    rows = [line.partition("\t") for line in run.stdout.splitlines() if "\t" in line]
    found = {name: outcome for name, _, outcome in rows}
    assert run.returncode == 0, run.stderr[-2000:]
    return found


@pytest.mark.parametrize("name", scenarios())
def test_scenario(name, outcomes):
    assert outcomes.get(name) == "ok", outcomes.get(name, "did not run").replace(" | ", "\n")
