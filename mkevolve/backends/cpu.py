"""The backend without a device: candidates are compiled ahead of time and run by the Triton interpreter, each
job in its own child process. This process loads neither triton nor candidate code.
"""

import hashlib
import json
import os
import shutil
import signal
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from mkevolve.backends import child
from mkevolve.backends.channel import Channel, Outcome
from mkevolve.backends.processes import Limits
from mkevolve.backends.scratch import Scratch, sweep
from mkevolve.backends.wire import MalformedFrame, save_tensors
from mkevolve.data.codec import Json, decode, encode
from mkevolve.data.verdict import Status
from mkevolve.errors import BackendError
from mkevolve.interfaces import Backend, Case, CaseResult, CompileJob, CompileResult, RunJob

_GIB = 1 << 30


class InterpreterBackend(Backend):
    """Two zygotes, one that compiles and one that interprets, each doing one job at a time.

    `memory_gib` is what a child may take beyond the loaded libraries, `inputs_gib` the input files kept
    between jobs. Threads may share an object; a copy in another process (pickled, or after a fork) starts
    zygotes of its own.
    """

    def __init__(self, memory_gib: float = 8.0, inputs_gib: float = 2.0, processes: int = 32) -> None:
        self._arguments = (memory_gib, inputs_gib, processes)
        self._guard = threading.Lock()
        self._live: _Live | None = None

    def __reduce__(self) -> tuple[type["InterpreterBackend"], tuple[float, float, int]]:
        return type(self), self._arguments

    def compile(self, job: CompileJob) -> CompileResult:
        live = self._ensure()
        outcome = live.do(live.compiler, job.source, encode(job), self._limits(job.deadline))
        for frame in outcome.frames[:1]:
            try:
                result = decode(CompileResult, frame.header.get("result"))
            except (TypeError, ValueError, KeyError, AttributeError):
                break
            return replace(result, seconds=outcome.seconds)
        status, message = _failure(outcome, job.deadline)
        return CompileResult(status, message, seconds=outcome.seconds)

    def run(self, job: RunJob) -> tuple[CaseResult, ...]:
        live = self._ensure()
        cases = live.inputs.place(job.cases)
        body: Json = {"configuration": encode(job.configuration), "cases": cases, "off": encode(job.off)}
        outcome = live.do(live.interpreter, job.source, body, self._limits(job.deadline))
        results: list[CaseResult] = []
        try:
            for frame in outcome.frames:
                results.append(child.read_case_frame(frame))
                if results[-1].status is not Status.PASSED:
                    return tuple(results)
        except MalformedFrame as error:
            results.append(CaseResult(Status.RUNTIME_ERROR, f"the child's answer cannot be read: {error}"))
            return tuple(results)
        if len(results) < len(job.cases):
            results.append(CaseResult(*_failure(outcome, job.deadline)))
        return tuple(results[: len(job.cases)])

    def close(self) -> None:
        with self._guard:
            live, self._live = self._live, None
        if live is not None and live.owner == os.getpid():
            live.close()

    def zygotes(self) -> tuple[int, ...]:
        """Process ids of the zygotes that run now."""
        live = self._live
        pids = (live.compiler.pid, live.interpreter.pid) if live else ()
        return tuple(pid for pid in pids if pid is not None)

    def _ensure(self) -> "_Live":
        with self._guard:
            if self._live is not None and self._live.owner != os.getpid():
                self._live.abandon()
                self._live = None
            if self._live is None:
                self._live = _Live(int(self._arguments[1] * _GIB))
            return self._live

    def _limits(self, deadline: float) -> Limits:
        return Limits(deadline, memory=int(self._arguments[0] * _GIB), processes=self._arguments[2])


class _Live:
    """What an `InterpreterBackend` holds in one process: its zygotes and its scratch folder."""

    def __init__(self, inputs_bytes: int) -> None:
        self.owner = os.getpid()
        sweep()
        scratch = Scratch()
        self.scratch = scratch.path
        self.inputs = _Inputs(self.scratch / "inputs", inputs_bytes)
        self.compiler = Channel(interpret=False, scratch=self.scratch)
        self.interpreter = Channel(interpret=True, scratch=self.scratch)
        # Loading takes seconds: let both begin now, the second is wanted right after the first.
        self.compiler.start()
        self.interpreter.start()
        self._jobs = 0
        self._count = threading.Lock()
        self._end = weakref.finalize(self, _end, self.owner, scratch, (self.compiler, self.interpreter))

    def do(self, channel: Channel, source: str, job: Json, limits: Limits) -> Outcome:
        """Lay the job out in a folder of its own, have it done, remove the folder."""
        with self._count:
            self._jobs += 1
            folder = self.scratch / f"job{self._jobs}"
        try:
            folder.mkdir(mode=0o700)
            (folder / child.SOURCE).write_text(source, encoding="utf-8")
            (folder / child.JOB).write_text(json.dumps(job))
        except OSError as error:
            raise BackendError(f"cannot write a job below {self.scratch}: {error}") from error
        task = "run" if channel is self.interpreter else "compile"
        try:
            outcome = channel.run(task, folder, limits)
            if _is_killed(outcome):  # for lack of memory: perhaps that of the moment
                outcome = channel.run(task, folder, limits)
            outcome = replace(outcome, said=_last_line(folder / child.OUTPUT))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        frames = outcome.frames
        if frames and "broken" in frames[0].header:  # later ones may be the candidate's doing
            raise BackendError(f"{task} child: {frames[0].header['broken']}")
        if _is_killed(outcome):
            raise BackendError(f"the {task} child was killed twice from outside: the machine lacks memory")
        if outcome.how == "lost":
            raise BackendError(f"the process that watches the {task} child was lost twice")
        return replace(outcome, frames=frames[1:])  # without the word that candidate code begins

    def abandon(self) -> None:
        self.compiler.abandon()
        self.interpreter.abandon()

    def close(self) -> None:
        self._end()


class _Inputs:
    """Input files by `Case.key`, written once; the least recently used go when they take too much space."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._kept: OrderedDict[str, tuple[Path, list[Json], int]] = OrderedDict()
        self._lock = threading.Lock()

    def place(self, cases: Iterable[Case]) -> list[Json]:
        """Return the cases as the child reads them; their files exist until the next call at least."""
        with self._lock:
            encoded, used = [], set()
            for case in cases:
                file, specs, _ = self._file(case)
                used.add(case.key)
                encoded.append(child.encode_case(case, file, specs))
            self._evict(used)
        return encoded

    def _file(self, case: Case) -> tuple[Path, list[Json], int]:
        if case.key not in self._kept:
            name = hashlib.sha256(case.key.encode()).hexdigest()[:32]
            path = self._folder / f"{name}.safetensors"
            try:
                self._folder.mkdir(exist_ok=True, mode=0o700)
                specs = save_tensors((*case.activations, *case.params), path)
                self._kept[case.key] = (path, specs, path.stat().st_size)
            except OSError as error:
                raise BackendError(f"cannot write the inputs of a case: {error}") from error
        self._kept.move_to_end(case.key)
        return self._kept[case.key]

    def _evict(self, used: set[str]) -> None:
        total = sum(size for _, _, size in self._kept.values())
        for key in [k for k in self._kept if k not in used]:
            if total <= self._limit:
                return
            path, _, size = self._kept.pop(key)
            path.unlink(missing_ok=True)
            total -= size


def _is_killed(outcome: Outcome) -> bool:
    """No fault of a candidate: it may send no signals, and its own limits end it otherwise."""
    return outcome.how == "signal" and outcome.code == signal.SIGKILL


def _failure(outcome: Outcome, deadline: float) -> tuple[Status, str]:
    """What to say of a child that ended without its answer."""
    match outcome.how:
        case "timeout":
            return Status.TIMEOUT, f"not done after {deadline:g} s of computing"
        case "signal" if outcome.code == signal.SIGXCPU:
            return Status.TIMEOUT, f"not done after {deadline:g} s of computing"
        case "signal":
            said = f": {outcome.said}" if outcome.said else ""
            return Status.RUNTIME_ERROR, f"the child died by {_signal_name(outcome.code)}{said}"
        case "processes":
            return Status.RUNTIME_ERROR, f"the child started more than {outcome.code} processes"
        case "flood":
            return Status.RUNTIME_ERROR, "the child sent more than it may"
    return Status.RUNTIME_ERROR, f"the child ended without an answer (exit code {outcome.code})"


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 2000))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _end(owner: int, scratch: Scratch, channels: tuple[Channel, ...]) -> None:
    if os.getpid() != owner:  # a forked copy of the owner is going away, not the owner
        return
    for channel in channels:
        channel.close()
    scratch.release()
