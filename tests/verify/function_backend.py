"""A backend that runs Python functions in this process: what is judged, without Triton."""

import torch

from mkevolve.data.measurement import Traffic
from mkevolve.data.plan import Buffer, Launch, LaunchPlan, Output, Resources
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Backend, CaseResult, CompileResult

SOURCE = """
import torch, triton, triton.language as tl


@triton.jit
def _f(x, o):
    pass


def run(x):
    out = torch.empty_like(x)
    _f[(1,)](x, out)
    return out
"""
TRAFFIC = Traffic("_f", 6, 64, 0, 0, 0, 0, 0, 0)


class FunctionBackend(Backend):
    """`function(case)` gives the outputs of a launch; without launches, poison is all there is."""

    def __init__(self, subgraph, function, **changes):
        self.subgraph, self.function, self.changes = subgraph, function, changes
        self.jobs = []

    def compile(self, job):
        if "compiled" in self.changes:
            return self.changes["compiled"]
        plans = []
        for name, _, _ in job.variants:
            (value,) = dict(self.subgraph.variants)[name].output_values
            launch = Launch(
                "_f", (1, 1, 1), (), (), (), Resources(1, 0, 0, 4, 1), self.changes.get("dots", ())
            )
            buffers = (Buffer("t0", value.spec, self.changes.get("fill")),)
            output = Output(self.changes.get("buffer", "t0"), 0, value.spec)
            plans.append(LaunchPlan(name, job.chip.name, buffers, (launch,), (output,)))
        return CompileResult(Status.PASSED, plans=tuple(plans))

    def run(self, job):
        self.jobs.append(job)
        results = []
        for case in job.cases:
            results.append(self._case(case))
            if results[-1].status is not Status.PASSED:
                break
        return tuple(results)

    def _case(self, case):
        if not case.launch:
            still = self.changes.get("still", self._untouched)
            left = still(case)
            return left if isinstance(left, CaseResult) else CaseResult(Status.PASSED, outputs=(left,))
        result = self.function(case)
        if isinstance(result, CaseResult):
            return result
        written = None
        if case.instances is not None:
            written = (torch.ones(result.shape, dtype=torch.bool),)
        return CaseResult(Status.PASSED, outputs=(result,), written=written, traffic=(TRAFFIC,))

    def _untouched(self, case):
        (value,) = dict(self.subgraph.variants)[case.variant].output_values
        poison = 100 + case.poison if value.spec.dtype != "bool" else case.poison == 0
        dtype = getattr(torch, value.spec.dtype)
        return torch.empty_strided(value.spec.shape, value.spec.stride, dtype=dtype).fill_(poison)

    def close(self):
        pass
