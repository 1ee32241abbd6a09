"""The backend on a CUDA device: candidates are compiled ahead of time and run on the device, each job in its
own child process. This process loads neither triton nor candidate code and needs no CUDA context.
"""

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mkevolve.backends import child
from mkevolve.backends.answers import compiled, ran
from mkevolve.backends.confinement import KERNELS, Measure, Mode
from mkevolve.backends.device_seeds import Seeds, Variant
from mkevolve.backends.jobs import Jobs
from mkevolve.backends.processes import Limits
from mkevolve.backends.sandbox import enforced, require
from mkevolve.backends.wire import encoded_spec
from mkevolve.data.chip import Chip
from mkevolve.data.codec import Json, decode_spec, encode
from mkevolve.data.graph import TensorSpec
from mkevolve.interfaces import Backend, Case, CaseResult, CompileJob, CompileResult, Protection, RunJob

if TYPE_CHECKING:
    import torch

_GIB = 1 << 30
_COMPILE_DEADLINE = 10.0  # seconds a variant
_MODES = (Mode.COMPILE_DEVICE, Mode.DEVICE)


class CudaBackend(Backend):
    """Two zygotes, one that compiles and one that runs on the device, each doing one job at a time.

    `chip` is the device's. `memory_gib` is what a child may take of the host's address space, of which CUDA
    reserves 18 GiB or more; `inputs_gib` the input files kept between jobs. A device error costs the child in
    which it arose. Confinement, threads and copies are as with `InterpreterBackend`. What a run job needs and
    no compile job has built is compiled first.
    """

    on_device: ClassVar[bool] = True

    def __init__(
        self,
        chip: Chip,
        memory_gib: float = 96.0,
        inputs_gib: float = 8.0,
        *,
        strict: bool = False,
        without: frozenset[Measure] = frozenset(),
    ) -> None:
        self._chip = chip
        self._arguments = (memory_gib, inputs_gib, strict, without)
        self._guard = threading.Lock()
        self._live: tuple[Jobs, Seeds] | None = None
        if strict:
            require(self.protection)

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self._chip, *self._arguments)

    @property
    def protection(self) -> Protection:
        return enforced(self._arguments[3])[1]

    def compile(self, job: CompileJob) -> CompileResult:
        jobs, seeds = self._ensure()
        limits = Limits(job.deadline)

        def harvest(folder: Path) -> None:
            seeds.take(folder / child.CACHE, job.source, job.configuration)

        keep = harvest if job.chip == self._chip else None
        result = compiled(jobs.do(Mode.COMPILE_DEVICE, job.source, encode(job), limits, keep), limits)
        if keep is not None:
            variants = {(activations, params) for _, activations, params in job.variants}
            seeds.note(job.source, job.configuration, variants)
        return result

    def run(self, job: RunJob) -> tuple[CaseResult, ...]:
        jobs, seeds = self._ensure()
        missing = seeds.missing(job.source, job.configuration, {_variant(case) for case in job.cases})
        if missing:  # whatever comes of it: the child compiles what it does not find
            variants = tuple((f"v{i}", *variant) for i, variant in enumerate(sorted(missing, key=repr)))
            deadline = _COMPILE_DEADLINE * len(variants)
            self.compile(CompileJob(job.source, job.configuration, variants, self._chip, deadline))
        limits = Limits(job.deadline, memory=int(self._arguments[0] * _GIB), wall_clock=True)
        body: Json = {
            "configuration": encode(job.configuration),
            "cases": jobs.inputs.place(job.cases),
            "off": encode(job.off),
            "profile": job.profile,
            "kernels": str(seeds.cache(job.source, job.configuration)),
        }
        return ran(jobs.do(Mode.DEVICE, job.source, body, limits), len(job.cases), limits)

    def close(self) -> None:
        with self._guard:
            live, self._live = self._live, None
        if live is not None and live[0].owner == os.getpid():
            live[0].close()

    def zygotes(self) -> tuple[int, ...]:
        """Process ids of the zygotes that run now."""
        live = self._live
        return live[0].zygotes() if live else ()

    def _ensure(self) -> tuple[Jobs, Seeds]:
        with self._guard:
            if self._live is not None and self._live[0].owner != os.getpid():
                self._live[0].abandon()
                self._live = None
            if self._live is None:
                jobs = Jobs(_MODES, enforced(self._arguments[3])[0], int(self._arguments[1] * _GIB))
                self._live = jobs, Seeds(jobs.scratch / KERNELS)
            return self._live


def _variant(case: Case) -> Variant:
    return _specs(case.activations), _specs(case.params)


def _specs(tensors: "tuple[torch.Tensor, ...]") -> tuple[TensorSpec, ...]:
    return tuple(decode_spec(encoded_spec(tensor)) for tensor in tensors)


def _again(
    chip: Chip, memory_gib: float, inputs_gib: float, strict: bool, without: frozenset[Measure]
) -> CudaBackend:
    return CudaBackend(chip, memory_gib, inputs_gib, strict=strict, without=without)
