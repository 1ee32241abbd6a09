"""Trees of processes on Linux: who descends from whom, ending them all, and the limits of a child."""

import errno
import itertools
import os
import resource
import signal
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_BEYOND = 1 << 62
_SPARE_PROCESSES = 16  # the zygote, and for the zygote to see that there are too many
_PATIENCE = 4.0  # a loaded machine may be this much slower before a job that computes is taken to hang


@dataclass(frozen=True, slots=True)
class Limits:
    """What one job may use: seconds, bytes of memory, bytes in one file, processes at a time.

    `deadline` is in processor time of all that the job started, so that other load does not decide; with
    `wall_clock`, where a device computes, in time. `memory` is address space beyond what a child has at its
    start: loaded libraries alone take 1 to 10 GiB. `file` also limits what its folder holds.
    """

    deadline: float
    memory: int = 8 << 30
    file: int = 1 << 30
    processes: int = 32
    wall_clock: bool = False

    @property
    def wall(self) -> float:
        """Seconds after which even a job that hardly computes is ended."""
        return self.deadline * (1.0 if self.wall_clock else _PATIENCE)


def descendants(root: int) -> tuple[int, ...]:
    """Live descendants of a process, zombies included, parents before children."""
    found: list[int] = []
    pending = [root]
    while pending:
        children = list(_children(pending.pop()))
        found += children
        pending += children
    return tuple(found)


def processor_seconds(pids: Iterable[int]) -> float:
    """Processor time that processes have used, with what their children had used that they have reaped."""
    ticks = 0
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):  # it ended while we looked
            fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


def threads_of(pids: Iterable[int]) -> int:
    """How many threads processes have."""
    count = 0
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):
            count += int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[17])
    return count


def end_descendants(patience: float = 10.0) -> bool:
    """Kill and reap every descendant of this process, which must be a reaper; False if some are left.

    Each pass kills all that it sees: a process that forks while being killed leaves orphans to the next pass.
    """
    until = time.monotonic() + patience
    while time.monotonic() < until:
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if _reap_all():
            return True
        time.sleep(0.002)
    return False


def end_processes_in(folder: Path, patience: float = 5.0) -> None:
    """Kill whatever works in a folder: what is left when the reaper itself was killed."""
    until = time.monotonic() + patience
    while working := [pid for pid in _numbers(_PROC) if _works_in(pid, folder)]:
        for pid in working:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            return
        time.sleep(0.005)


def apply_limits(limits: Limits, counted_apart: bool = False) -> None:
    """Set this process's resource limits; they hold for all that it starts.

    `counted_apart` says that its user's processes are counted in a namespace of their own.
    """
    cpu = int(limits.deadline) + 2
    for kind, value, spare in (
        (resource.RLIMIT_AS, _address_space() + limits.memory, 0),
        (resource.RLIMIT_FSIZE, limits.file, 0),
        (
            resource.RLIMIT_CPU,
            cpu,
            3,
        ),  # first SIGXCPU, which says why; SIGKILL would look like lack of memory
        (resource.RLIMIT_CORE, 1, 0),  # with 0 a host's crash reporter would still be started
        # Not for root, whom this does not bind: the zygote counts too.
        *([(resource.RLIMIT_NPROC, limits.processes + _SPARE_PROCESSES, 0)] if counted_apart else []),
    ):
        hard = resource.getrlimit(kind)[1]
        most = value + spare if hard == resource.RLIM_INFINITY else min(value + spare, hard)
        resource.setrlimit(kind, (min(value, most), most))


def _address_space() -> int:
    pages = int((_PROC / "self" / "statm").read_text().split()[0])
    return pages * resource.getpagesize()


def bytes_below(folder: Path, most_entries: int = 10_000) -> int:
    """Bytes that the files below a folder take on disk; with too many entries, more than any limit."""
    total, pending = 0, [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                found = list(itertools.islice(entries, most_entries + 1))
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # to hide what lies there
                return _BEYOND
            continue  # it vanished while we looked
        most_entries -= len(found)
        if most_entries < 0:
            return _BEYOND
        for entry in found:
            with suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return total


def bytes_unseen(pids: Iterable[int]) -> int:
    """Bytes on disk of files that processes hold open but that have no name any more."""
    total = 0
    for pid in pids:
        folder = _PROC / str(pid) / "fd"
        for number in _numbers(folder):
            with suppress(OSError):
                facts = os.stat(folder / str(number))
                if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 0:
                    total += facts.st_blocks * 512
    return total


def own_memory(pids: Iterable[int]) -> int:
    """Bytes of memory of processes beyond what each shares, or would share, with this one."""
    mine = _private(os.getpid())
    return sum(max(0, _private(pid) - mine) for pid in pids)


def _private(pid: int) -> int:
    try:
        fields = (_PROC / str(pid) / "statm").read_text().split()
    except OSError:  # it ended while we looked
        return 0
    return (int(fields[1]) - int(fields[2])) * resource.getpagesize()


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return Path(os.readlink(_PROC / str(pid) / "cwd")).is_relative_to(folder)
    except OSError:  # it ended, or is another user's
        return False


def _reap_all() -> bool:
    """Collect what has ended; True when this process has no child left."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return False
        except ChildProcessError:
            return True


def _children(pid: int) -> Iterator[int]:
    tasks = _PROC / str(pid) / "task"
    for task in _numbers(tasks):
        try:
            yield from map(int, (tasks / str(task) / "children").read_text().split())
        except FileNotFoundError:
            if tasks.exists() and not _lists_children():
                yield from _children_by_parent(pid)
                return
        except OSError:  # it ended while we looked
            continue


def _children_by_parent(pid: int) -> Iterator[int]:
    for other in _numbers(_PROC):
        with suppress(OSError, IndexError, ValueError):
            # The command between the parentheses may itself hold blanks and parentheses.
            if int((_PROC / str(other) / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                yield other


def _numbers(folder: Path) -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.isdecimal():
                yield int(name)


def _lists_children() -> bool:
    return (_PROC / "self" / "task" / str(os.getpid()) / "children").exists()
