"""A verdict does not depend on the process, the hash seed, the number of threads or the load."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.interp, pytest.mark.slow]

HERE = Path(__file__).parent
NAMES = (
    "zeros", "race", "float_atomics", "no_maximum", "out_of_bounds", "half_accumulator", "skipped_tail",
    "one_pass_variance", "torch_compute", "first_rows_only", "layer_norm", "fused_softmax",
    "transpose_blocks",
)  # fmt: skip


def start(seed: int) -> subprocess.Popen[str]:
    changes = {"PYTHONHASHSEED": str(seed), "OMP_NUM_THREADS": str(1 + seed % 3)}
    return subprocess.Popen(
        [sys.executable, HERE / "all_verdicts.py", *NAMES],
        env={**os.environ, **changes},
        cwd=HERE.parent.parent,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_ten_processes_agree_in_every_field():
    found = []
    for first in (0, 5):  # five at a time, on however few cores: the load is part of the test
        running = [start(seed) for seed in range(first, first + 5)]
        found += [json.loads(process.communicate()[0]) for process in running]
    one, *others = found
    assert len(one) >= len(NAMES) - 1
    for other in others:
        for name, verdict in one.items():
            assert other[name] == verdict, name
