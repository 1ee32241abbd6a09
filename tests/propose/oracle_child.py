"""Child of `oracle.run`: executes candidates in the Triton interpreter and writes what is wrong."""

import importlib.util
import itertools
import json
import sys
import traceback
from pathlib import Path

import torch

from mkevolve.backends.interpreter import install, run_case
from mkevolve.data.candidate import Configuration
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case

install()  # bfloat16 as a chip computes it
torch.set_num_threads(1)


def load(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def configurations(tunables):
    """The defaults, and the smallest value of everything."""
    first = {k: v[0] for k, v in tunables.items()}
    least = {k: min(v) for k, v in tunables.items()}
    return [first] if first == least else [first, least]


def wrong(got, wide, eager, tolerance):
    if got.shape != eager.shape or got.dtype != eager.dtype:
        return f"{tuple(got.shape)} {got.dtype} instead of {tuple(eager.shape)} {eager.dtype}"
    if got.stride() != eager.stride():
        return f"strides {got.stride()} instead of {eager.stride()}"
    if not got.is_floating_point():
        return "" if torch.equal(got, eager) else f"{(got != eager).sum()} of {got.numel()} differ"
    finite = torch.isfinite(wide)
    if not torch.equal(torch.isnan(got), torch.isnan(wide)):
        return "NaN elsewhere"
    same = (got.double() == wide) | torch.isnan(got)
    if not same[~finite].all():
        return "infinite elsewhere"
    if not finite.any():
        return ""
    scale = wide[finite].abs().max().clamp(min=1e-30)
    error = ((got.double() - wide)[finite].abs().max() / scale).item()
    return "" if error <= tolerance else f"error {error:.2e}"


def outcome(module, cases, tolerance):
    for settings in configurations(getattr(module, "TUNABLES", {})):
        for number, (activations, params, (wide, eager)) in enumerate(cases):
            case = Case(f"case{number}", "target", activations, params)
            result = run_case(module, Configuration(tuple(settings.items())), case)
            where = f"case {number} {settings}"
            if result.status is not Status.PASSED:
                return f"{where}: {result.status} {result.message}"
            if result.inputs_changed or result.state_changed:
                return f"{where}: changes {result.inputs_changed} {result.state_changed}"
            if len(result.outputs) != len(eager):
                return f"{where}: {len(result.outputs)} results"
            for place, (got, want, like) in enumerate(zip(result.outputs, wide, eager, strict=True)):
                message = wrong(got, want, like, tolerance)
                if message:
                    return f"{where} output {place}: {message}"
    return ""


def main(folder):
    report = {}
    jobs = json.loads((folder / "jobs.json").read_text())
    for cases_file, group in itertools.groupby(jobs, key=lambda job: job[2]):
        cases = torch.load(folder / cases_file)
        for name, path, _, tolerance in group:
            try:
                message = outcome(load(path), cases, tolerance)
            except Exception:  # noqa: BLE001 - a candidate may raise anything
                message = traceback.format_exc()[-1500:]
            if message:
                report[name] = message
    (folder / "report.json").write_text(json.dumps(report, indent=1))


main(Path(sys.argv[1]))
