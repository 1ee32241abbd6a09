"""The backend without a device: candidates are compiled ahead of time and run by the Triton interpreter, each
job in its own child process. This process loads neither triton nor candidate code.
"""

import os
import threading

from mkevolve.backends.answers import compiled, ran
from mkevolve.backends.confinement import Measure, Mode
from mkevolve.backends.jobs import Jobs
from mkevolve.backends.processes import Limits
from mkevolve.backends.sandbox import enforced, require
from mkevolve.data.codec import Json, encode
from mkevolve.interfaces import Backend, CaseResult, CompileJob, CompileResult, Protection, RunJob

_GIB = 1 << 30
_MODES = (Mode.COMPILE, Mode.INTERPRET)


class InterpreterBackend(Backend):
    """Two zygotes, one that compiles and one that interprets, each doing one job at a time.

    `memory_gib` is what a child may take beyond the loaded libraries, `inputs_gib` the input files kept
    between jobs. Children are confined as far as this host can; with `strict`, `UserError` says where that is
    not all. Tests take away all of it (`confine=False`) or single measures (`without`), which are then
    reported as missing. Threads may share an object; a copy in another process (pickled, or after a fork)
    starts zygotes of its own.
    """

    def __init__(
        self,
        memory_gib: float = 8.0,
        inputs_gib: float = 2.0,
        processes: int = 32,
        *,
        strict: bool = False,
        confine: bool = True,
        without: frozenset[Measure] = frozenset(),
    ) -> None:
        without = without if confine else frozenset(Measure)
        self._arguments = (memory_gib, inputs_gib, processes, strict, without)
        self._guard = threading.Lock()
        self._jobs: Jobs | None = None
        if strict:
            require(self.protection)

    def __reduce__(self) -> tuple[object, ...]:
        return _again, self._arguments

    @property
    def protection(self) -> Protection:
        return enforced(self._arguments[4])[1]

    def compile(self, job: CompileJob) -> CompileResult:
        limits = self._limits(job.deadline)
        return compiled(self._ensure().do(Mode.COMPILE, job.source, encode(job), limits), limits)

    def run(self, job: RunJob) -> tuple[CaseResult, ...]:
        jobs, limits = self._ensure(), self._limits(job.deadline)
        cases = jobs.inputs.place(job.cases)
        body: Json = {"configuration": encode(job.configuration), "cases": cases, "off": encode(job.off)}
        return ran(jobs.do(Mode.INTERPRET, job.source, body, limits), len(job.cases), limits)

    def close(self) -> None:
        with self._guard:
            jobs, self._jobs = self._jobs, None
        if jobs is not None and jobs.owner == os.getpid():
            jobs.close()

    def zygotes(self) -> tuple[int, ...]:
        """Process ids of the zygotes that run now."""
        jobs = self._jobs
        return jobs.zygotes() if jobs else ()

    def _ensure(self) -> Jobs:
        with self._guard:
            if self._jobs is not None and self._jobs.owner != os.getpid():
                self._jobs.abandon()
                self._jobs = None
            if self._jobs is None:
                measures, _ = enforced(self._arguments[4])
                self._jobs = Jobs(_MODES, measures, int(self._arguments[1] * _GIB))
            return self._jobs

    def _limits(self, deadline: float) -> Limits:
        return Limits(deadline, memory=int(self._arguments[0] * _GIB), processes=self._arguments[2])


def _again(
    memory_gib: float, inputs_gib: float, processes: int, strict: bool, without: frozenset[Measure]
) -> InterpreterBackend:
    return InterpreterBackend(memory_gib, inputs_gib, processes, strict=strict, without=without)
