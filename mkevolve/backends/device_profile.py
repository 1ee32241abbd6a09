"""Which kernels the device really runs in a call, by CUPTI through torch.profiler, in a child process."""

from collections import defaultdict
from types import ModuleType

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from mkevolve.backends import device_run
from mkevolve.data.activity import Activity
from mkevolve.data.candidate import Configuration
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case, CaseResult

CALLS = 3  # profiled calls, after one that loads the kernels


def profile_case(module: ModuleType, configuration: Configuration, case: Case) -> CaseResult:
    """Call `run` as a user would, with nothing of ours around it, and report what the device did, a call.

    Raises what the candidate raises.
    """
    with torch.no_grad():
        params, _ = device_run.prepared(module, case, frozenset())
        inputs = [*(x.cuda() for x in case.activations), *params]
        module.run(*inputs, **dict(configuration.settings))
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as session:
            for _ in range(CALLS):
                module.run(*inputs, **dict(configuration.settings))
            torch.cuda.synchronize()
    found: defaultdict[str, list[float]] = defaultdict(list)
    for event in session.events() or ():
        if event.device_type == DeviceType.CUDA and event.name:
            found[event.name].append(event.time_range.elapsed_us())
    activities = tuple(
        Activity(name, -(-len(times) // CALLS), sum(times) / CALLS) for name, times in sorted(found.items())
    )
    return CaseResult(Status.PASSED, activities=activities)
