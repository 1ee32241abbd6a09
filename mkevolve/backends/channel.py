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
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import mkevolve
from mkevolve.backends.confinement import Mode, Setup
from mkevolve.backends.processes import Limits, end_processes_in
from mkevolve.backends.wire import Frame, FrameReader, MalformedFrame
from mkevolve.data.verdict import Status
from mkevolve.errors import BackendError

# Nothing else of the caller's environment reaches a child: it may hold keys.
_ALLOWED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME")
_OF_DEVICES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)  # fmt: skip
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_START = 180.0  # seconds that loading torch and triton may take on a busy machine
_GRACE = 15.0  # seconds beyond the job's end after which its zygote is given up
_TRIES = 5  # zygotes that may be lost before a job has begun


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came back of a job: the frames, and how the child ended.

    `how` is `exit`, `signal`, `timeout`, `processes`, `disk` or `memory` (too much), `malformed` (what it
    sent, as `said` tells) or `lost` (the zygote died twice with it). Otherwise `said` is the last line that
    the child printed. `crash` is a verdict, where the child left word of what it did when it crashed.
    """

    frames: tuple[Frame, ...]
    how: str
    code: int
    seconds: float
    said: str = ""
    crash: tuple[Status, str] | None = None


class Channel:
    """One zygote, started when first needed. Its scratch folder is removed by the zygote when it ends."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._scratch = setup.scratch
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

    def run(self, lay_out: Callable[[], Path], limits: Limits) -> Outcome:
        """Have a child do the job in the folder that `lay_out` makes, anew for each try.

        Returns when all its descendants are gone.
        """
        with self._lock:
            lost, tries = 0, 0
            while lost < 2 and tries < _TRIES:
                tries += 1
                folder = lay_out()
                try:
                    return self._run(folder, limits)
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

    @property
    def _log(self) -> Path:
        return self._scratch / f"{self._setup.mode}.log"

    def _launch(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        with theirs, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-s", "-m", "mkevolve.backends.zygote"),
                    *(str(theirs.fileno()), self._setup.mode, str(self._scratch)),
                    ",".join(sorted(self._setup.measures)),
                ],
                env=_environment(self._setup.mode, self._scratch),
                pass_fds=[theirs.fileno()],
                cwd=self._scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the parent, whose socket then closes
            )
        self._control = ours
        self._ready = False

    def _run(self, folder: Path, limits: Limits) -> Outcome:
        if self._process is None:
            self._launch()
        control = self._await_ready()
        started = time.monotonic()
        read, write = os.pipe()
        try:
            order = {"folder": str(folder), "limits": asdict(limits)}
            try:
                socket.send_fds(control, [json.dumps(order).encode()], [write])
            except OSError as error:
                raise _ZygoteLost(started=False) from error
            finally:
                os.close(write)
            answer = _Answer(read, limits.memory)
            how, code = self._collect(control, answer, started + limits.wall + _GRACE)
        finally:
            os.close(read)
        return Outcome(answer.frames, how, code, time.monotonic() - started, answer.fault)

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
                said = self._log.read_text(errors="replace") if self._log.exists() else ""
                tail = said.strip().splitlines()[-1:]
                self._discard()
                raise BackendError(f"the process that loads torch and triton did not start: {''.join(tail)}")
        return control

    def _collect(self, control: socket.socket, answer: "_Answer", until: float) -> tuple[str, int]:
        """Read the pipe until the zygote says that all is over, then what is left in it."""
        started = False
        poll = select.poll()
        poll.register(answer.pipe, select.POLLIN)
        poll.register(control, select.POLLIN)
        while True:
            events = dict(poll.poll(max(0.0, until - time.monotonic()) * 1000))
            if not events:
                raise _ZygoteLost(started)
            if answer.pipe in events and not answer.take():
                poll.unregister(answer.pipe)
                if answer.fault:
                    _tell_to_stop(control)
            if control.fileno() in events:
                message = _receive(control)
                if not message:
                    raise _ZygoteLost(started)
                end = json.loads(message)
                if "started" in end:
                    started = True
                    continue
                while answer.take():  # no writer is left, so this ends
                    pass
                return ("malformed", 0) if answer.fault else (end["how"], end["code"])

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


def _tell_to_stop(control: socket.socket) -> None:
    with contextlib.suppress(OSError):  # a zygote that is gone is found out next
        control.send(json.dumps({"stop": 1}).encode())


class _Answer:
    """What comes out of a job's pipe; the first bytes that are no frame of ours end it, as its `fault`."""

    def __init__(self, pipe: int, most: int) -> None:
        self.pipe = pipe
        self.fault = ""
        self._reader = FrameReader(most)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return tuple(self._reader.frames)

    def take(self) -> bool:
        """Read once; False when nothing more is to come, or to be read."""
        if self.fault:
            return False
        data = os.read(self.pipe, 1 << 20)
        try:
            self._reader.feed(data)
        except MalformedFrame as error:
            self.fault = str(error)
        return bool(data) and not self.fault


def _environment(mode: Mode, scratch: Path) -> dict[str, str]:
    package = str(Path(mkevolve.__file__).resolve().parent.parent)
    names = (*_ALLOWED, *_OF_DEVICES) if mode is Mode.DEVICE else _ALLOWED
    kept = {name: os.environ[name] for name in names if name in os.environ}
    fixed = {
        "PYTHONPATH": package,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "HOME": str(scratch),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "CUDA_CACHE_PATH": str(scratch / "cuda"),
    }
    if mode is not Mode.DEVICE:
        fixed["CUDA_VISIBLE_DEVICES"] = ""
    if mode is Mode.INTERPRET:
        fixed["TRITON_INTERPRET"] = "1"
    return kept | fixed | dict.fromkeys(_ONE_THREAD, "1")
