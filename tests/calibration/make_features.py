"""Compile and sample every configuration of `h200.jsonl` (no GPU needed): the inputs of the cost model.

Usage: python tests/calibration/make_features.py [ROWS.jsonl] [OUT.json]

`features.json` holds, for each line of `h200.jsonl` in order, what `estimate` reads: the launch plan (null with
the message where the chip refuses the launch) and the traffic of a few program instances. The test of the cost
model reads that file; another test makes some of its entries again and compares.
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
INSTANCES = 6


def load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / "kernels" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensors(case):
    """Activations and parameters of a case of `time_kernels.py`; traffic and resources depend on no value."""
    import torch

    kind, *sizes = case
    dtype = next(getattr(torch, s) for s in sizes if not s.isdigit() and hasattr(torch, s) and s != "softmax")
    n = [int(s) for s in sizes if s.isdigit()]
    make = lambda *shape: torch.full(shape, 0.5, dtype=dtype)  # noqa: E731
    image = lambda: make(*n[:2], n[2], n[2]).to(memory_format=torch.channels_last)  # noqa: E731
    match kind:
        case "conv":
            return [image()], [make(n[1], n[1], 3, 3), *(make(n[1]) for _ in range(4))]
        case "linear":
            return [make(n[0], n[2])], [make(n[1], n[2]), make(n[1])]
        case "rows":
            return [make(*n)], [] if sizes[-1] == "softmax" else [make(n[1])]
        case "depthwise":
            return [image()], [make(n[1], 1, 3, 3)]
        case "sdpa":
            return [make(n[0], n[1], n[2], 64) for _ in range(3)], []
    raise ValueError(kind)


def compiled(row):
    """The launch plan without what the cost model does not read, or the refusal."""
    from dataclasses import replace

    import torch

    from mkevolve.backends.fault import CandidateFault
    from mkevolve.backends.recorder import prepare, record, spec_of
    from mkevolve.data.candidate import Configuration
    from mkevolve.data.codec import encode
    from mkevolve.measure.chips import load_chip

    torch.set_num_threads(1)
    module = load(row["kernel"])
    activations, params = tensors(row["case"])
    configuration = Configuration(tuple(row["config"].items()))
    try:
        prepared = prepare(module, [spec_of(p) for p in params])
        plan = record(module, configuration, ("target", [spec_of(a) for a in activations]), prepared, load_chip("h200"))
    except CandidateFault as fault:
        return {"plan": None, "refused": fault.message}
    launches = tuple(replace(launch, signature=(), constants=()) for launch in plan.launches)
    return {"plan": encode(replace(plan, launches=launches))}


def sampled(row):
    """Traffic of a few program instances; the process was started with TRITON_INTERPRET=1."""
    from mkevolve.backends import interpreter
    from mkevolve.data.candidate import Configuration
    from mkevolve.data.codec import encode
    from mkevolve.interfaces import Case

    interpreter.install()
    activations, params = tensors(row["case"])
    case = Case("0", "target", tuple(activations), tuple(params), instances=INSTANCES)
    result = interpreter.run_case(load(row["kernel"]), Configuration(tuple(row["config"].items())), case)
    if not result.traffic:
        raise SystemExit(result.message)
    return {"traffic": encode(result.traffic)}


def child(rows, mode):
    """One process for all rows of one mode: Triton is compiler or interpreter for the life of a process."""
    environment = {**os.environ, "TRITON_INTERPRET": "1" if mode == "sampled" else "0"}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, __file__, mode], input=json.dumps(rows), capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def features(rows):
    return [c | s for c, s in zip(child(rows, "compiled"), child(rows, "sampled"), strict=True)]


def main(source=HERE / "h200.jsonl", out=HERE / "features.json"):
    rows = [json.loads(line) for line in pathlib.Path(source).read_text().splitlines()]
    lines = [json.dumps(f, separators=(",", ":")) for f in features(rows)]
    pathlib.Path(out).write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    if sys.argv[1:] in (["compiled"], ["sampled"]):
        work = {"compiled": compiled, "sampled": sampled}[sys.argv[1]]
        json.dump([work(row) for row in json.load(sys.stdin)], sys.stdout)
    else:
        main(*sys.argv[1:])
