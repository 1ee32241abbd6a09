"""A process that has torch and triton loaded and forks a child per job; run as `python -m`, never imported.

It runs no torch op before it forks, since a forked child hangs in its first parallel op otherwise. It takes
one order at a time from a socket; when the socket closes, it ends with all that descends from it. Before it
loads anything it enters the namespaces that the host offers: the first process of its process namespace, so
that all others there end with it and none of them can signal it.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from mkevolve.backends.confinement import Measure, Mode, Setup, start
from mkevolve.backends.linux import become_reaper, die_with_parent
from mkevolve.backends.processes import (
    Limits,
    bytes_below,
    bytes_unseen,
    descendants,
    end_descendants,
    own_memory,
    processor_seconds,
    threads_of,
)
from mkevolve.backends.scratch import remove

_TICK = 0.05  # seconds between two looks at the number of processes
_THREADS = 8  # that a process may have on average
_MESSAGE = 1 << 16
_FIRST_TO_KILL = "500"  # where memory is short, rather than our caller


@dataclass(frozen=True, slots=True)
class _Job:
    """One order: its folder, what it may use, and where its child writes."""

    folder: Path
    limits: Limits
    pipe: int


@dataclass(frozen=True, slots=True)
class _End:
    """How a job ended: `exit`, `signal`, `timeout`, `processes`, `disk` or `memory` (too much), `stopped` (by
    order), `closed` (nobody waits).
    """

    how: str
    code: int = 0


def main(descriptor: int, setup: Setup) -> int:
    """Serve orders until the socket closes, then remove the scratch folder; returns the exit code.

    Several zygotes share it. All remove it whatever happens to them, so that the last one leaves nothing: the
    first may do so while another still loads and writes there.
    """
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    inner = -1
    try:
        _prefer_to_be_killed()
        inner = start(setup)
        if inner > 0:
            return os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
        _serve(control, setup)
        return 0
    finally:
        if inner <= 0:
            end_descendants()
        inside = inner == 0 and Measure.PROCESSES in setup.measures
        # A parent that is still there wants to read the log, and is the one to remove the folder.
        if not inside and _is_closed(control):
            remove(setup.scratch)


def _prefer_to_be_killed() -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_KILL)
    except OSError:  # a container may forbid it; the order of killing is then the kernel's
        return


def _serve(control: socket.socket, setup: Setup) -> None:
    become_reaper()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a child could send it, were it handled
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    _preload(setup.mode)
    _tell(control, {"ready": 1})
    while True:
        message, received, _, _ = socket.recv_fds(control, _MESSAGE, 1)
        if not message:
            break
        asked = json.loads(message)
        if "stop" in asked:  # the job had ended by itself
            continue
        job = _Job(Path(asked["folder"]), Limits(**asked["limits"]), received[0])
        end = _do(setup, job, control, wake)
        if end.how == "closed" or not end_descendants():
            break
        if not _tell(control, {"how": end.how, "code": end.code}):
            break


def _is_closed(control: socket.socket) -> bool:
    try:
        return not control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _preload(mode: Mode) -> None:
    """Import and compute once what every child needs; nothing here may run a torch op or leave a thread."""
    if mode is Mode.INTERPRET:
        import triton.experimental.gluon  # noqa: F401 - the first launch would import it, in every child

        from mkevolve.backends import interpreter  # noqa: F401
    elif mode is Mode.DEVICE:
        from mkevolve.backends import device_child

        device_child.preload()
    else:
        import torch.fx.experimental.symbolic_shapes  # noqa: F401 - likewise, by ops on meta tensors

        from mkevolve.backends import recorder, seam  # noqa: F401

        seam.warm()
        if mode is Mode.COMPILE_DEVICE:
            from mkevolve.backends import device_seam

            device_seam.build_launchers()
    gc.collect()
    gc.freeze()  # the collector would otherwise touch, hence copy, every page in each child


def _tell(control: socket.socket, message: dict[str, int | str]) -> bool:
    try:
        control.send(json.dumps(message).encode())
    except OSError:  # the parent is gone
        return False
    return True


def _do(setup: Setup, job: _Job, control: socket.socket, wake: int) -> _End:
    from mkevolve.backends import child  # loads torch: not in a process that only waits

    zygote = os.getpid()
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        if os.getppid() != zygote:  # it ended before the call
            os._exit(1)
        child.serve(setup, job.folder, job.limits, job.pipe)
    os.close(job.pipe)
    if not _tell(control, {"started": pid}):
        return _End("closed")
    until = time.monotonic() + job.limits.wall
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(control, select.POLLIN | select.POLLHUP)
    while True:
        events = dict(poll.poll(_TICK * 1000))
        if wake in events:
            os.read(wake, _MESSAGE)
        if control.fileno() in events:
            return _End("closed" if _is_closed(control) else "stopped")
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return _End("signal", -code) if code < 0 else _End("exit", code)
        over = _excess(job, until)
        if over is not None:
            return over


def _excess(job: _Job, until: float) -> _End | None:
    """What the job has used too much of."""
    limits = job.limits
    alive = descendants(os.getpid())
    if time.monotonic() > until:
        return _End("timeout")
    if not limits.wall_clock and processor_seconds(alive) > limits.deadline:
        return _End("timeout")
    if len(alive) > limits.processes or threads_of(alive) > _THREADS * limits.processes:
        return _End("processes", limits.processes)
    if bytes_below(job.folder) + bytes_unseen(alive) > limits.file:
        return _End("disk")
    if len(alive) > 1 and own_memory(alive) > limits.memory:  # of one process the kernel sees to it
        return _End("memory")
    return None


if __name__ == "__main__":
    _words = sys.argv[1:]
    _measures = frozenset(Measure(word) for word in _words[3].split(",") if word)
    sys.exit(main(int(_words[0]), Setup(Mode(_words[1]), _measures, Path(_words[2]))))
