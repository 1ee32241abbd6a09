"""The parent's end of a zygote: start it, hand it one job at a time, replace it when it is gone."""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import mkevolve
from mkevolve.backends.processes import Limits, end_processes_in
from mkevolve.backends.wire import Frame, MalformedFrame, split_frames
from mkevolve.errors import BackendError

# Nothing else of the caller's environment reaches a child: it may hold keys.
_ALLOWED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT", "CUDA_HOME")
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_START = 180.0  # seconds that loading torch and triton may take on a busy machine
_GRACE = 15.0  # seconds beyond the job's end after which its zygote is given up
_MOST_BYTES = 8 << 30
_TRIES = 5  # zygotes that may be lost before a job has begun


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came back of a job: the frames, and how the child ended.

    `how` is `exit`, `signal`, `timeout`, `processes` (too many), `flood` (too many bytes) or `lost` (the
    zygote died twice with it). `said` is the last line of what the child printed.
    """

    frames: tuple[Frame, ...]
    how: str
    code: int
    seconds: float
    said: str = ""


class Channel:
    """One zygote, started when first needed. `scratch` is removed by the zygote when it ends."""

    def __init__(self, interpret: bool, scratch: Path) -> None:
        self._interpret = interpret
        self._scratch = scratch
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the zygote, None before its start."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the zygote if there is none; does not wait until it has loaded."""
        with self._lock:
            if self._process is None:
                self._launch()

    def run(self, task: str, folder: Path, limits: Limits) -> Outcome:
        """Have a child do the job that lies in `folder`; returns when all its descendants are gone."""
        with self._lock:
            lost, tries = 0, 0
            while lost < 2 and tries < _TRIES:
                tries += 1
                try:
                    return self._run(task, folder, limits)
                except _ZygoteLost as loss:
                    lost += loss.started
                    self._discard()
                    end_processes_in(folder)
                except BaseException:  # such as Ctrl-C: its answer would be taken for the next job's
                    self._discard()
                    end_processes_in(folder)
                    raise
            return Outcome((), "lost", 0, 0.0)

    def close(self) -> None:
        """End the zygote and its children, and wait for it."""
        with self._lock:
            process, control = self._process, self._control
            self._process = self._control = None
            if control is not None:
                control.close()
            if process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE)
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def abandon(self) -> None:
        """Let go of another process's zygote: in a forked copy, which must not keep its socket open."""
        if self._control is not None:
            self._control.close()

    def _launch(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = "interpret" if self._interpret else "compile"
        with theirs, (self._scratch / f"{mode}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-s", "-m", "mkevolve.backends.zygote"),
                    *(str(theirs.fileno()), mode, str(self._scratch)),
                ],
                env=_environment(self._interpret, self._scratch),
                pass_fds=[theirs.fileno()],
                cwd=self._scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the parent, whose socket then closes
            )
        self._control = ours
        self._ready = False

    def _run(self, task: str, folder: Path, limits: Limits) -> Outcome:
        if self._process is None:
            self._launch()
        control = self._await_ready()
        started = time.monotonic()
        read, write = os.pipe()
        try:
            order = {"task": task, "folder": str(folder), "limits": asdict(limits)}
            try:
                socket.send_fds(control, [json.dumps(order).encode()], [write])
            except OSError as error:
                raise _ZygoteLost(started=False) from error
            finally:
                os.close(write)
            data, how, code = self._collect(control, read, started + limits.wall + _GRACE)
        finally:
            os.close(read)
        return Outcome(_frames(data), how, code, time.monotonic() - started)

    def _await_ready(self) -> socket.socket:
        control = self._control
        assert control is not None
        if not self._ready:
            control.settimeout(_START)
            try:
                self._ready = bool(control.recv(_MESSAGE))
            except OSError:
                self._ready = False
            control.settimeout(None)
            if not self._ready:
                log = self._scratch / ("interpret.log" if self._interpret else "compile.log")
                tail = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
                self._discard()
                raise BackendError(f"the process that loads torch and triton did not start: {''.join(tail)}")
        return control

    def _collect(self, control: socket.socket, read: int, until: float) -> tuple[bytearray, str, int]:
        """Read the pipe until the zygote says that all is over, then what is left in it."""
        data, started = bytearray(), False
        poll = select.poll()
        poll.register(read, select.POLLIN)
        poll.register(control, select.POLLIN)
        while True:
            events = dict(poll.poll(max(0.0, until - time.monotonic()) * 1000))
            if not events:
                raise _ZygoteLost(started)
            if events.get(read, 0) & select.POLLIN:
                data += os.read(read, 1 << 20)
            elif read in events:
                poll.unregister(read)
            if len(data) > _MOST_BYTES:
                self._discard()
                return bytearray(), "flood", 0
            if control.fileno() in events:
                message = _receive(control)
                if not message:
                    raise _ZygoteLost(started)
                end = json.loads(message)
                if "started" in end:
                    started = True
                    continue
                while chunk := os.read(read, 1 << 20):  # no writer is left, so this ends
                    data += chunk
                return data, end["how"], end["code"]

    def _discard(self) -> None:
        process, control = self._process, self._control
        self._process = self._control = None
        if process is not None:  # before the socket closes, which would make it remove the scratch folder
            process.kill()
            process.wait()
        if control is not None:
            control.close()


class _ZygoteLost(Exception):
    """The zygote ended, or does not answer; `started` says whether the job's child was there already."""

    def __init__(self, started: bool) -> None:
        super().__init__()
        self.started = started


_MESSAGE = 1 << 16


def _receive(control: socket.socket) -> bytes:
    try:
        return control.recv(_MESSAGE)
    except ConnectionError:
        return b""


def _frames(data: bytearray) -> tuple[Frame, ...]:
    frames: list[Frame] = []
    with contextlib.suppress(MalformedFrame):  # the frames before the cut are whole
        for frame in split_frames(data):
            frames.append(frame)
    return tuple(frames)


def _environment(interpret: bool, scratch: Path) -> dict[str, str]:
    package = str(Path(mkevolve.__file__).resolve().parent.parent)
    kept = {name: os.environ[name] for name in _ALLOWED if name in os.environ}
    fixed = {
        "PYTHONPATH": package,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "HOME": str(scratch),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    threads = dict.fromkeys(_ONE_THREAD, "1")
    return kept | fixed | threads | ({"TRITON_INTERPRET": "1"} if interpret else {})
