"""What the backends share: zygotes that do one job at a time, a scratch folder, input files, and what to say
of a job that did not end well.
"""

import hashlib
import json
import os
import signal
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from mkevolve.backends import child, fault
from mkevolve.backends.channel import Channel, Outcome
from mkevolve.backends.confinement import INPUTS, Measure, Mode, Setup
from mkevolve.backends.processes import Limits
from mkevolve.backends.scratch import Scratch, plain_text, remove, sweep
from mkevolve.backends.wire import printable, save_tensors
from mkevolve.data.codec import Json
from mkevolve.data.verdict import Status
from mkevolve.errors import BackendError
from mkevolve.interfaces import Case

_GIB = 1 << 30


class Jobs:
    """Zygotes, one a mode, with a scratch folder; of one process, `owner`: a fork of it must let them go.

    At most `inputs_bytes` of input files are kept between jobs.
    """

    def __init__(self, modes: tuple[Mode, ...], measures: frozenset[Measure], inputs_bytes: int) -> None:
        self.owner = os.getpid()
        sweep()
        scratch = Scratch()
        self.scratch = scratch.path
        (self.scratch / INPUTS).mkdir(mode=0o700)  # before the zygotes, which make it read-only for theirs
        self.inputs = _Inputs(self.scratch / INPUTS, inputs_bytes)
        self._channels = {mode: Channel(Setup(mode, measures, self.scratch)) for mode in modes}
        for channel in self._channels.values():  # loading takes seconds: let all begin now
            channel.start()
        self._jobs = 0
        self._count = threading.Lock()
        self._end = weakref.finalize(self, _end, self.owner, scratch, tuple(self._channels.values()))

    def do(
        self,
        mode: Mode,
        source: str,
        job: Json,
        limits: Limits,
        harvest: Callable[[Path], None] | None = None,
    ) -> Outcome:
        """Lay the job out in a folder of its own, have it done, remove the folder, which `harvest` sees last.

        A child that was killed, or lost with its zygote, gets a second chance: the fault may have been that
        of the moment. Raises `BackendError` where candidate code never began.
        """
        with self._count:
            self._jobs += 1
            folder = self.scratch / f"job{self._jobs}"
        channel, description = self._channels[mode], json.dumps(job)

        def lay_out() -> Path:
            remove(folder)  # a child that is tried again may have left another source
            try:
                folder.mkdir(mode=0o700)
                (folder / child.SOURCE).write_text(source, encoding="utf-8")
                child.job_file(folder).write_text(description)
            except OSError as error:
                raise BackendError(f"cannot write a job below {self.scratch}: {error}") from error
            return folder

        try:
            outcome = channel.run(lay_out, limits)
            if _is_killed(outcome):
                outcome = channel.run(lay_out, limits)
            outcome = _with_words(outcome, folder)
            if harvest is not None:
                harvest(folder)
        finally:
            remove(folder)
            child.job_file(folder).unlink(missing_ok=True)
        frames = outcome.frames
        if frames and "broken" in frames[0].header:  # later ones may be the candidate's doing
            raise BackendError(f"{mode} child: {frames[0].header['broken']}")
        if not frames and outcome.how not in ("lost", "timeout"):
            how = f"{outcome.how} {outcome.code}"
            raise BackendError(f"the {mode} child ended before candidate code began ({how}): {outcome.said}")
        return replace(outcome, frames=frames[1:])  # without the word that candidate code begins

    def zygotes(self) -> tuple[int, ...]:
        """Process ids of the zygotes that run now, in the order of the modes."""
        pids = (channel.pid for channel in self._channels.values())
        return tuple(pid for pid in pids if pid is not None)

    def abandon(self) -> None:
        """Let go of another process's zygotes: in a forked copy, which must not keep their sockets open."""
        for channel in self._channels.values():
            channel.abandon()

    def close(self) -> None:
        """End the zygotes and remove the scratch folder."""
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
    """By the kernel for lack of memory, or from outside: its own limits end it otherwise."""
    return outcome.how == "signal" and outcome.code == signal.SIGKILL


def failure(outcome: Outcome, limits: Limits) -> tuple[Status, str]:
    """What to say of a child that ended without its answer."""
    if outcome.crash is not None:
        return outcome.crash
    if outcome.how == "signal":
        return _killed(outcome, limits)
    if outcome.how == "timeout":
        return _late(limits)
    said = {
        "processes": f"the child started more than {outcome.code} processes, or too many threads",
        "disk": f"the child wrote more than {limits.file / _GIB:.3g} GiB of files",
        "memory": f"the child and what it started took more than {_memory(limits)}",
        "malformed": f"the child's answer cannot be read: {outcome.said}",
        "lost": "the child was lost twice with the process that watches it: the machine lacks memory for it,"
        f" within its limit of {_memory(limits)}",
    }
    without = f"the child ended without an answer (exit code {outcome.code})"
    return Status.RUNTIME_ERROR, said.get(outcome.how, without)


def _killed(outcome: Outcome, limits: Limits) -> tuple[Status, str]:
    if outcome.code == signal.SIGXCPU:
        return _late(limits)
    if outcome.code == signal.SIGKILL:
        message = "the child was killed twice: the machine lacks memory for it, within its limit of"
        return Status.RUNTIME_ERROR, f"{message} {_memory(limits)}"
    said = f": {outcome.said}" if outcome.said else ""
    return Status.RUNTIME_ERROR, f"the child died by {_signal_name(outcome.code)}{said}"


def _late(limits: Limits) -> tuple[Status, str]:
    return (
        Status.TIMEOUT,
        f"not done after {limits.deadline:g} s{'' if limits.wall_clock else ' of computing'}",
    )


def _memory(limits: Limits) -> str:
    return f"{limits.memory / _GIB:.3g} GiB beyond what is loaded"


def _with_words(outcome: Outcome, folder: Path) -> Outcome:
    """With what the child left in its folder about its end."""
    if outcome.how == "signal" and outcome.code == signal.SIGSEGV:
        outcome = replace(outcome, crash=fault.crash(folder, str(folder / child.SOURCE)))
    if outcome.said:
        return outcome
    lines = reversed(plain_text(folder / child.OUTPUT, 2000).split("\n"))
    return replace(outcome, said=next((printable(line.strip(), 200) for line in lines if line.strip()), ""))


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
