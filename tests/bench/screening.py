"""What a screen verdict of a small pointwise candidate costs: in a running verifier, and in fresh processes.

`python -m tests.bench.screening NUMBER` verifies candidate NUMBER in this process and prints what it cost.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.data.model import Precision
from mkevolve.data.verdict import Tier
from mkevolve.measure.chips import load_chip
from mkevolve.search.params import default_configuration
from mkevolve.verify.engine import Verifier
from mkevolve.verify.references import References

HERE = Path(__file__).parent
WARM, FRESH = 8, 3  # candidates of each kind; no two are the same file, so nothing is in a cache

SOURCE = """
import torch, triton, triton.language as tl


@triton.jit
def _add_gelu(x, b, o, n, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x + i, mask=inside, other=0.0) + tl.load(b + i % columns, mask=inside, other={number}.0)
    tl.store(o + i, 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476)), mask=inside)


def run(x, b):
    out = torch.empty_like(x)
    n = x.numel()
    _add_gelu[(triton.cdiv(n, 64),)](x, b, out, n, x.shape[1], BLOCK=64)
    return out
"""


class Bench:
    """One verifier with its references, as a search worker has it."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        sys.path.insert(0, str(HERE.parent / "verify"))
        from verify_subjects import gelu

        self.subgraph, seen = gelu()
        self.references = References(self.subgraph, seen)
        self.backend = InterpreterBackend()
        self.verifier = Verifier(self.backend, load_chip("h200"), Precision.IEEE)

    def screen(self, number: int) -> None:
        source = SOURCE.replace("{number}", str(number))
        configuration = default_configuration(source)
        found = self.verifier.verify(self.subgraph, self.references, source, configuration, Tier.SCREEN)
        assert found.verdict.passed, found.verdict

    def spent(self) -> float:
        """Processor seconds of this process and of all below its zygotes, also of those that ended."""
        return time.process_time() + _below(self.backend.zygotes())


def figures() -> Iterator[str]:
    """Both ways side by side: medians of processor time and of wall time."""
    bench = Bench()
    warm, fresh = [], []
    try:
        for number in range(2):  # zygotes and references, once a search
            bench.screen(number)
        for number in range(WARM):
            started, spent = time.perf_counter(), bench.spent()
            bench.screen(100 + number)
            warm.append((bench.spent() - spent, time.perf_counter() - started))
            if number < FRESH:
                fresh.append(_fresh(200 + number))
    finally:
        bench.backend.close()
    (cpu, wall), (cpu_fresh, wall_fresh) = _median(warm), _median(fresh)
    yield f"screen verdict of a pointwise candidate: {cpu:.2f} s of processor time, {wall:.2f} s wall"
    yield f"in fresh processes: {cpu_fresh:.2f} s of processor time, {wall_fresh:.2f} s wall"
    yield f"{cpu_fresh / cpu:.1f} and {wall_fresh / wall:.1f} times as much"


def _fresh(number: int) -> tuple[float, float]:
    started = time.perf_counter()
    words = [sys.executable, "-m", "tests.bench.screening", str(number)]
    done = subprocess.run(words, cwd=HERE.parent.parent, capture_output=True, check=True, text=True)
    return json.loads(done.stdout), time.perf_counter() - started


def _median(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    first, second = (sorted(column)[len(pairs) // 2] for column in zip(*pairs, strict=True))
    return first, second


def _below(roots: Iterable[int]) -> float:
    parents, seconds = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(name)] = int(stat[1])
        seconds[int(name)] = sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")
    roots = set(roots)

    def is_below(process: int) -> bool:
        while process in parents:
            if process in roots:
                return True
            process = parents[process]
        return False

    return sum(s for process, s in seconds.items() if is_below(process))


if __name__ == "__main__":
    once = Bench()
    try:
        once.screen(int(sys.argv[1]))
        sys.stdout.write(json.dumps(once.spent()))
    finally:
        once.backend.close()
