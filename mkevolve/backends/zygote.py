"""A process that has torch and triton loaded and forks a child per job; run as `python -m`, never imported.

It runs no torch op before it forks, since a forked child hangs in its first parallel op otherwise. It takes
one order at a time from a socket; when the socket closes, it ends with all that descends from it.
"""

import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass

from mkevolve.backends import child
from mkevolve.backends.processes import (
    Limits,
    become_reaper,
    descendants,
    die_with_parent,
    end_descendants,
    processor_seconds,
)

_TICK = 0.05  # seconds between two looks at the number of processes
_MESSAGE = 1 << 16


@dataclass(frozen=True, slots=True)
class _End:
    """How a job ended: `exit`, `signal`, `timeout`, `processes` (too many), `closed` (nobody waits)."""

    how: str
    code: int = 0


def main(descriptor: int, interpret: bool, scratch: str) -> None:
    """Serve orders until the socket closes, then remove the scratch folder.

    Two zygotes share it. Both remove it whatever happens to them, so that the last one leaves nothing: the
    first may do so while the other still loads and writes there.
    """
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    try:
        _serve(control, interpret)
    finally:
        end_descendants()
        if _is_closed(
            control
        ):  # else the parent is there, wants to read the log, and is the one to remove it
            shutil.rmtree(scratch, ignore_errors=True)


def _serve(control: socket.socket, interpret: bool) -> None:
    become_reaper()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    _preload(interpret)
    _tell(control, {"ready": 1})
    while True:
        message, received, _, _ = socket.recv_fds(control, _MESSAGE, 1)
        if not message:
            break
        order = json.loads(message)
        end = _do(
            child.Order(order["task"], order["folder"], Limits(**order["limits"])), received[0], control, wake
        )
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


def _preload(interpret: bool) -> None:
    """Import and compute once what every child needs; nothing here may run a torch op or leave a thread."""
    if interpret:
        import triton.experimental.gluon  # noqa: F401 - the first launch would import it, in every child

        from mkevolve.backends import interpreter  # noqa: F401
    else:
        import torch.fx.experimental.symbolic_shapes  # noqa: F401 - likewise, by ops on meta tensors

        from mkevolve.backends import recorder, seam  # noqa: F401

        seam.warm()
    gc.collect()
    gc.freeze()  # the collector would otherwise touch, hence copy, every page in each child


def _tell(control: socket.socket, message: dict[str, int | str]) -> bool:
    try:
        control.send(json.dumps(message).encode())
    except OSError:  # the parent is gone
        return False
    return True


def _do(order: child.Order, pipe: int, control: socket.socket, wake: int) -> _End:
    zygote = os.getpid()
    pid = os.fork()
    if pid == 0:
        die_with_parent(zygote)
        child.serve(order, pipe)
    os.close(pipe)
    if not _tell(control, {"started": pid}):
        return _End("closed")
    until = time.monotonic() + order.limits.wall
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(control, select.POLLIN | select.POLLHUP)
    while True:
        events = dict(poll.poll(_TICK * 1000))
        if wake in events:
            os.read(wake, _MESSAGE)
        if control.fileno() in events:
            return _End("closed")
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return _End("signal", -code) if code < 0 else _End("exit", code)
        alive = descendants(os.getpid())
        if time.monotonic() > until or processor_seconds(alive) > order.limits.deadline:
            return _End("timeout")
        if len(alive) > order.limits.processes:
            return _End("processes", order.limits.processes)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "interpret", sys.argv[3])
