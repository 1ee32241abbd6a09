"""The device task of a forked child: load the candidate, call it on the device, send one frame a case."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch

from mkevolve.backends import child, device_profile, device_run, device_seam
from mkevolve.backends.wire import Frame
from mkevolve.data.candidate import Configuration
from mkevolve.data.codec import Json, decode
from mkevolve.data.gates import Gate
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case, CaseResult


def preload() -> None:
    """What the zygote does before it forks; CUDA stays uninitialised, since no fork survives it."""
    device_seam.preload()


def work(job: Json, path: Path) -> Iterator[Frame]:
    """Do a run job: `cases` as `child.read_case` reads them, the first failing one ends it.

    What is yielded before `child.BEGUN` is our own doing: a device that cannot be used raises there.
    """
    match job:
        case {
            "configuration": configuration,
            "cases": list(cases),
            "off": list(off),
            "profile": bool(profile),
            "kernels": str(kernels),
        }:
            settings, gates = decode(Configuration, configuration), decode(frozenset[Gate], off)
        case _:
            raise ValueError("not a device job")
    torch.set_num_threads(1)
    _link(Path(kernels), path.parent / child.CACHE)
    torch.cuda.init()  # type: ignore[no-untyped-call]
    torch.zeros(1, device="cuda")  # a device that is taken or broken says so here
    device_run.install()
    yield child.BEGUN
    try:
        module = child.load_candidate(path)
    except BaseException as error:  # noqa: BLE001 - candidate code
        yield child.case_frame(device_run.blamed(error, str(path)))
        return
    for encoded in cases:
        result = _one(module, settings, child.read_case(encoded), gates, profile)
        yield child.case_frame(result)
        if result.status is not Status.PASSED:
            return


def _link(kernels: Path, cache: Path) -> None:
    """Show Triton what is compiled already; what is not goes to this child's own folder."""
    cache.mkdir(exist_ok=True)
    for group in kernels.iterdir() if kernels.is_dir() else ():
        (cache / group.name).symlink_to(group)


def _one(
    module: ModuleType, settings: Configuration, case: Case, off: frozenset[Gate], profile: bool
) -> CaseResult:
    try:
        if profile:
            return device_profile.profile_case(module, settings, case)
        return device_run.run_case(module, settings, case, off)
    except BaseException as error:  # noqa: BLE001 - candidate code
        return device_run.blamed(error, str(module.__file__))
