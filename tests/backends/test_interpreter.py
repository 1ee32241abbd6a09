"""Runs files of checks, each once in a child with TRITON_INTERPRET=1; one test for each of their checks."""

import ast
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = ("interpreter_checks", "integrity_checks")
DTYPES = ("float32", "float16", "bfloat16")


def _names(file):
    for node in ast.parse((HERE / f"{file}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("check_"):
            yield from [f"{node.name}[{d}]" for d in DTYPES] if node.args.args else [node.name]


@functools.cache
def _results(file):
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": str(HERE.parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(HERE / f"{file}.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.interp
@pytest.mark.parametrize(("file", "name"), [(f, n) for f in FILES for n in _names(f)])
def test_interpreter(file, name):
    fault = _results(file)[name]
    assert fault is None, fault
