"""Runs the command line as a user does: in a process of its own, in a folder of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SMALL_MODEL = '''
"""Two layers and a pointwise tail, small enough for tests."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, 48)
        self.second = nn.Linear(48, 24)

    def forward(self, x):
        return torch.tanh(self.second(torch.relu(self.first(x)))) * 2.0


def get_inputs():
    return [torch.randn(64, 32)]


def get_init_inputs():
    return [32]
'''

# Few evaluations: what is tested is the road, not the search.
SHORT = ("budget.evaluations=2", "executor=serial", "evolve=none")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    def json(self) -> dict:
        return json.loads(self.out)


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TRITON")}
    return {**kept, "COLUMNS": "160", **more}


def mkevolve(folder: Path, *words: str, timeout: float = 600.0) -> Result:
    done = subprocess.run(
        [sys.executable, "-m", "mkevolve", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def python(folder: Path, code: str, **env: str) -> Result:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=600,
    )
    return Result(done.returncode, done.stdout, done.stderr)
