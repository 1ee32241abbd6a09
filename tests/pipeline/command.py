"""Runs the command line as a user does: in a process of its own, in a folder of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import sqlite_utils

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


def start(folder: Path, *words: str, **env: str) -> subprocess.Popen[str]:
    """The command in the background; its scratch folders go below `folder / "tmp"`."""
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "mkevolve", *words],
        cwd=folder, env=environment(TMPDIR=str(folder / "tmp"), **env), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for_rows(child: subprocess.Popen[str], folder: Path, count: int) -> None:
    """Until so many evaluations are committed; fails where the command ends before."""
    while committed(folder) < count:
        assert child.poll() is None, child.communicate()
        time.sleep(0.05)


def committed(folder: Path) -> int:
    database = folder / "searches" / "mkevolve.db"
    if not database.exists():
        return 0
    table = sqlite_utils.Database(database).table("evaluation")
    return table.count if table.exists() else 0


def run_status(folder: Path) -> list[str]:
    rows = sqlite_utils.Database(folder / "searches" / "mkevolve.db").table("run").rows
    return [row["status"] for row in rows]


def survivors(pids: Iterable[int], seconds: float = 15.0) -> list[str]:
    """What still runs of some processes after a while."""
    until = time.monotonic() + seconds
    while (alive := [pid for pid in pids if _runs(pid)]) and time.monotonic() < until:
        time.sleep(0.1)
    return [f"{pid} {Path(f'/proc/{pid}/cmdline').read_text()}" for pid in alive if _runs(pid)]


def scratch(folder: Path, seconds: float = 0.0) -> list[str]:
    """Scratch folders that are left after a while."""
    until = time.monotonic() + seconds
    while (left := sorted(p.name for p in (folder / "tmp").glob("mkevolve-*"))) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
