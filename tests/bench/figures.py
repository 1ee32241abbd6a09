"""Measures the figures of the main job on this machine: `python -m tests.bench.figures [NAME ...]`.

Names: main, models, graph, file, screen, agreement (default: all). Prints one line a figure; takes minutes.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mkevolve.data.graph import Graph

HERE = Path(__file__).parent
MODELS = (
    "resnet_block", "resnet_bottleneck", "transformer_block", "swiglu_mlp", "vit_attention",
    "convnext_block", "mbconv", "mlp",
)  # fmt: skip

SHORT = ("budget.evaluations=2", "evolve=none")  # the share does not depend on how long is searched


@dataclass
class Run:
    """One run of the command line, watched from outside."""

    wall: float
    peak_gib: float
    code: int
    result: dict


def run(folder: Path, *words: str) -> Run:
    """Run `mkevolve` with json=true; peak memory is the summed proportional set size of all new processes."""
    before = set(_processes())
    started = time.monotonic()
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        child = subprocess.Popen(
            [sys.executable, "-m", "mkevolve", *words, "json=true", f"root={folder}"], stdout=out, stderr=err
        )
        peak = 0
        while child.poll() is None:
            peak = max(peak, sum(_pss(p) for p in set(_processes()) - before))
            time.sleep(0.25)
    text = (folder / "out").read_text()
    result = json.loads(text) if text.strip() else {}
    return Run(time.monotonic() - started, peak / 2**20, child.returncode, result)


def main_job() -> Iterator[str]:
    """Cold run, second run, memory, share of subkernels in fp32 and bf16."""
    for words in (("model=resnet_block",), ("model=resnet_block", "model.dtype=bf16")):
        with tempfile.TemporaryDirectory() as name:
            cold = run(Path(name), *words)
            again = run(Path(name), *words)
        yield (
            f"{' '.join(words)}: cold {cold.wall:.0f} s, peak {cold.peak_gib:.2f} GiB, "
            f"{cold.result['evaluated']} evaluated; again {again.wall:.1f} s, "
            f"{again.result['evaluated']} evaluated; {_share(cold.result)}"
        )


def models() -> Iterator[str]:
    """Whether the composition is right, and the share of estimated time in subkernels; a short search."""
    yield f"with {' '.join(SHORT)}"
    for name in MODELS:
        for dtype in ("fp32", "bf16"):
            with tempfile.TemporaryDirectory() as folder:
                done = run(Path(folder), f"model={name}", f"model.dtype={dtype}", *SHORT)
            right = done.code == 0 and not any("whole model" in s["reason"] for s in done.result["slots"])
            yield f"{name} {dtype}: {'right' if right else 'WRONG'}, {_share(done.result)}, {done.wall:.0f} s"


def graph() -> Iterator[str]:
    """Our share of partition and legality on graphs of equal blocks: seconds against nodes."""
    from mkevolve.partition.execution import programs
    from mkevolve.partition.extract import slots_of
    from mkevolve.partition.first_cut import first_cut

    sys.path.insert(0, str(HERE.parent / "partition"))
    from partition_graphs import Sketch, conv_bn_relu, model

    def chain(blocks: int, size: int) -> Graph:
        sketch = Sketch()
        x = sketch.input((2, 8, size, size))
        for number in range(blocks):
            x = conv_bn_relu(sketch, x, 8, f"block{number}")
        return sketch.graph(x)

    for blocks in (16, 83, 167, 333):
        captured = model(*(chain(blocks, size) for size in (32, 9, 5)))
        started = time.process_time()
        cut = first_cut(captured)
        slots, subgraphs = slots_of(captured, cut)
        programs(captured, cut, slots)
        spent = time.process_time() - started
        nodes = len(captured.target.graph.nodes)
        yield f"{nodes} nodes: {spent:.3f} s, {len(slots)} slots, {len(subgraphs)} distinct"


def file() -> Iterator[str]:
    """A level-2 file: seconds until the decomposition is shown and until the first verified subkernel."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [sys.executable, "-m", "mkevolve", "model=file", f"model.path={HERE / 'level2.py'}"]
        started = time.monotonic()
        child = subprocess.Popen(
            [*words, f"root={folder}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert child.stderr is not None
        shown = first = None
        for line in child.stderr:
            now = time.monotonic() - started
            if "distinct subgraphs" in line and shown is None:
                shown = now
            if "accepted" in line and first is None:
                first = now
        child.wait()
    yield f"decomposition shown after {shown:.1f} s, first accepted subkernel after {first:.1f} s"


def _share(result: dict) -> str:
    totals = result["totals"]
    return f"{totals['own_slots']} of {totals['slots']} slots, {100 * totals['own_share']:.0f} % of the time"


def _processes() -> list[int]:
    return [int(p) for p in os.listdir("/proc") if p.isdigit()]


def _pss(process: int) -> int:
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        return 0
    return 0


def screen() -> Iterator[str]:
    """A screen verdict in a running verifier and in fresh processes, side by side."""
    from tests.bench.screening import figures

    yield from figures()


def agreement() -> Iterator[str]:
    """Ten runs over the whole corpus, two at a time, each with a hash seed of its own."""
    script = HERE.parent / "verify" / "all_verdicts.py"
    found = []
    for first in range(0, 10, 2):
        pair = [
            subprocess.Popen(
                [sys.executable, script],
                env={**os.environ, "PYTHONHASHSEED": str(seed), "OMP_NUM_THREADS": str(1 + seed % 2)},
                stdout=subprocess.PIPE,
            )
            for seed in (first, first + 1)
        ]
        found += [json.loads(child.communicate()[0]) for child in pair]
    differ = [name for name in found[0] if any(other[name] != found[0][name] for other in found)]
    yield f"{len(found[0])} verdicts, {len(found)} runs: {', '.join(differ) or 'all fields agree'}"


FIGURES = {
    "main": main_job,
    "models": models,
    "graph": graph,
    "file": file,
    "screen": screen,
    "agreement": agreement,
}


def main() -> None:
    """Print the figures named on the command line."""
    from importlib.metadata import version

    say = sys.stdout.write
    say(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {version('torch')}, triton {version('triton')}, chip h200, model clock, precision ieee\n"
    )
    for name in sys.argv[1:] or FIGURES:
        for line in FIGURES[name]():
            say(f"{name}: {line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
