"""Two hundred candidates in a row, twenty of them malicious: every verdict is right and nothing is left."""

import os
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from chip_specs import H200

from mkevolve.backends.confinement import Measure
from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.data.candidate import Configuration
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.gates import Gate
from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.model import Precision
from mkevolve.data.verdict import Status, Tier
from mkevolve.interfaces import Backend, CaseResult, CompileJob, CompileResult, RunJob
from mkevolve.verify.engine import Verifier
from mkevolve.verify.observe import observation
from mkevolve.verify.references import References

pytestmark = [pytest.mark.interp, pytest.mark.slow]

CANDIDATES, WORKERS = 200, 2
HASTE = 3.0  # seconds that a job may compute here
MARK = f"mkevolve-stress-{os.getpid()}"
SOURCE = """
import ctypes, os, sys, time
import torch, triton, triton.language as tl

@triton.jit
def scale(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * {factor}, mask=i < n)

def write_all_over():
    for folder in ({home!r}, {temporary!r}, "/dev/shm", "/var/tmp", "..", "../..", "../inputs"):
        try:
            open(folder + "/{mark}-{number}", "w")
        except OSError:
            pass

{module}
def run(x):
    {compiling} if x.device.type == "meta" else {running}
    o = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 64),)](x, o, x.numel(), B=64)
    return o
"""
ORPHANS = """
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
raise ValueError("orphans")
"""
RUNTIME, REFUSED = {Status.RUNTIME_ERROR}, {Status.RUNTIME_ERROR, Status.STATIC_ERROR}
# What to put where, and the statuses that are right.
MALICE = (
    ("running", "exec('while True: pass')", {Status.TIMEOUT}),
    ("running", "time.sleep(600)", {Status.TIMEOUT}),
    ("compiling", "exec('while True: pass')", {Status.TIMEOUT}),
    ("running", "ctypes.string_at(0)", REFUSED),
    ("compiling", "ctypes.string_at(0)", REFUSED),
    ("running", "os.abort()", RUNTIME),
    ("running", "os.kill(os.getpid(), 9)", RUNTIME),
    ("running", "[bytearray(1 << 26) for _ in range(1 << 20)]", RUNTIME),
    ("module", "keep = [bytearray(1 << 26) for _ in range(1 << 20)]", RUNTIME),
    ("running", "os.fork()", RUNTIME),
    ("module", "exec('while True: os.fork()')", RUNTIME),
    ("module", ORPHANS, RUNTIME),
    ("running", "exec('while True: os.write(3, bytes(1 << 16))')", RUNTIME),
    ("running", "os.dup2(1, 3)", RUNTIME),
    ("running", "[open(f'f{i}', 'wb').write(bytes(1 << 26)) for i in range(1000)]", RUNTIME),
)


class Hasty(Backend):
    """A backend whose jobs may take little time."""

    def __init__(self, backend: InterpreterBackend) -> None:
        self._backend = backend

    def compile(self, job: CompileJob) -> CompileResult:
        return self._backend.compile(replace(job, deadline=HASTE))

    def run(self, job: RunJob) -> tuple[CaseResult, ...]:
        return self._backend.run(replace(job, deadline=HASTE))

    def close(self) -> None:
        self._backend.close()


def doubling() -> tuple[Subgraph, References]:
    variants = {"target": (64, 48), "check_0": (5, 48), "check_1": (3, 7)}
    graphs, seen = [], []
    for name, (rows, columns) in variants.items():
        spec = TensorSpec((rows, columns), "float32", (columns, 1))
        node = Node("n0", "aten.mul.Tensor", (Ref("x0"), 2.0), (), (Value("n0", spec),))
        x = Input(Value("x0", spec), InputKind.ACTIVATION, None)
        graphs.append((name, Graph((x,), (node,), (Ref("n0"),))))
        seen.append((name, (torch.randn(rows, columns),)))
    subgraph = Subgraph("sg_doubling", "fam_doubling", tuple(graphs), "doubling")
    return subgraph, References(subgraph, observation(subgraph.id, tuple(seen[1:]), ()))


def candidate(number: int) -> tuple[str, set[Status]]:
    """The source of a candidate: each tenth is malicious, each tenth has wrong values; and what is right."""
    places = {
        "factor": "2.0", "module": "", "compiling": "None", "running": "None", "number": number, "mark": MARK,
        "home": str(Path.home()), "temporary": tempfile.gettempdir(),
    }  # fmt: skip
    right = {Status.PASSED}
    if number % 10 == 3:
        where, what, right = MALICE[number // 10 % len(MALICE)]
        places[where] = what
        places["module"] = f"write_all_over()\n{places['module']}"
    elif number % 10 == 7:
        places["factor"], right = f"{2 + number / 1000}", {Status.WRONG_VALUE}
    return SOURCE.format(**places), right


def processes_below(scratch: Path) -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(scratch) in path.read_text():
                found.add(int(path.parent.name))
        except OSError:  # it ended while we looked
            continue
    return found


def memory(pids: set[int]) -> int:
    """Proportional set size of processes in MiB."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total >> 10


def test_two_hundred_candidates_of_which_twenty_are_malicious():
    torch.set_num_threads(1)
    backends = [InterpreterBackend(memory_gib=1.0) for _ in range(WORKERS)]
    off = frozenset({Gate.STATIC, Gate.DISPATCH})
    judges = [(Verifier(Hasty(b), H200, Precision.IEEE, off=off), *doubling()) for b in backends]
    counts: Counter[Status] = Counter()

    def judge(lane: int, numbers: range) -> list[str]:
        wrong = []
        verifier, subgraph, references = judges[lane]
        for number in numbers:
            if number // 10 % WORKERS != lane:
                continue
            source, right = candidate(number)
            verdict = verifier.verify(subgraph, references, source, Configuration(), Tier.SCREEN).verdict
            counts[verdict.status] += 1
            if verdict.status not in right:
                wrong.append(f"{number} ({MALICE[number // 10 % len(MALICE)][:2]}): {verdict}")
        return wrong

    wrong, used = [], []
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            for numbers in (range(CANDIDATES // 4), range(CANDIDATES // 4, CANDIDATES)):
                for found in pool.map(judge, range(WORKERS), [numbers] * WORKERS):
                    wrong += found
                scratches = [Path(f"/proc/{b.zygotes()[0]}/cwd").readlink() for b in backends]
                alive = set().union(*map(processes_below, scratches))
                used.append(memory({os.getpid(), *alive}))
        left = [path for scratch in scratches for path in scratch.glob("job*")]
    finally:
        for backend in backends:
            backend.close()
    assert wrong == []
    assert counts[Status.PASSED] == CANDIDATES * 8 // 10
    assert left == []
    assert len(alive) <= 4 * WORKERS  # two zygotes a worker, each with the process that waits for it
    assert not set().union(*map(processes_below, scratches))
    assert not any(scratch.exists() for scratch in scratches)
    places = (Path.home(), Path(tempfile.gettempdir()), Path("/dev/shm"), Path("/var/tmp"))
    written = [path for place in places for path in place.glob(f"{MARK}*")]
    for path in written:
        path.unlink()
    if {Measure.LANDLOCK, Measure.PROCESSES} & set(backends[0].protection.enforced):
        assert written == []
    assert used[1] < 1.1 * used[0] + 32, f"MiB after a quarter and after all: {used}"
