"""Runs `interpreter_checks.py` once in a child with TRITON_INTERPRET=1; one test for each of its checks."""

import ast
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).with_name("interpreter_checks.py")
DTYPES = ("float32", "float16", "bfloat16")


def _names():
    for node in ast.parse(CHECKS.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("check_"):
            yield from [f"{node.name}[{d}]" for d in DTYPES] if node.args.args else [node.name]


@functools.cache
def _results():
    root = str(CHECKS.parents[2])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(CHECKS)], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.interp
@pytest.mark.parametrize("name", list(_names()))
def test_interpreter(name):
    fault = _results()[name]
    assert fault is None, fault
