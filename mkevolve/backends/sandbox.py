"""Which measures of `confinement.py` this host offers: each is tried for real, once, in a process that is
thrown away. Run as `python -m` it is that process.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

from mkevolve.backends import landlock, seccomp
from mkevolve.backends.confinement import Measure, Mode, Setup, start
from mkevolve.backends.linux import forgo_privileges
from mkevolve.errors import BackendError, UserError
from mkevolve.interfaces import Protection

_CURES = {
    Measure.USER: "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone,"
    " kernel.apparmor_restrict_unprivileged_userns; in Docker --security-opt seccomp=unconfined)",
    Measure.NETWORK: "allow user namespaces, or sysctl user.max_net_namespaces",
    Measure.PROCESSES: "allow user namespaces, and in Docker --security-opt systempaths=unconfined",
    Measure.LANDLOCK: "use Linux 5.13 or later with landlock in the boot option lsm=",
    Measure.SECCOMP: "use a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64",
}
_HOLDS = "holds"
_EMPTYING = 3  # version of Landlock that denies it, since Linux 6.2
_one_at_a_time = threading.Lock()


class _Leak(Exception):
    """The kernel took the measure, but it does not hold."""


def enforced(without: Iterable[Measure] = ()) -> tuple[frozenset[Measure], Protection]:
    """The measures that this host offers, tried once a process, and what to say of all; `without` are left
    out.
    """
    reasons = _tried() | dict.fromkeys(without, "switched off")
    missing = tuple(f"{m} ({reasons[m]})" for m in Measure if m in reasons)
    if Measure.PROCESSES in reasons and Measure.LANDLOCK not in reasons and landlock.version() < _EMPTYING:
        missing += (f"{Measure.LANDLOCK} (before version {_EMPTYING} it lets files elsewhere be emptied)",)
    taken = frozenset(m for m in Measure if m not in reasons)
    return taken, Protection(tuple(m.value for m in Measure if m in taken), missing)


def probe() -> Protection:
    """What this host enforces and what it does not, with the reason."""
    return enforced()[1]


def require(protection: Protection) -> None:
    """Raise `UserError` naming what is missing and the cure."""
    if protection.missing:
        cures = [cure for m, cure in _CURES.items() if any(t.startswith(m) for t in protection.missing)]
        raise UserError(
            f"sandbox=strict, but not enforced here: {', '.join(protection.missing)}. "
            f"Cure: {'; '.join(dict.fromkeys(cures))}; or leave out sandbox=strict"
        )


def main(scratch: str) -> None:
    """Try every measure and print, as JSON, why those that fail do."""
    inside, outside = Path(scratch, "inside"), Path(scratch, "outside")
    inside.mkdir()
    outside.mkdir()
    (outside / "canary").write_text("canary")
    reasons: dict[str, str] = {}
    for measure in Measure:
        base = frozenset({Measure.USER} - reasons.keys())
        said = _outcome(partial(_try, measure, base, inside, outside / "canary"))
        if said != _HOLDS:
            reasons[measure] = said or "its trial was killed"
    sys.stdout.write(json.dumps(reasons))


def _tried() -> dict[Measure, str]:
    with _one_at_a_time:
        return _fails()


@cache
def _fails() -> dict[Measure, str]:
    """Why measures fail: those that fail twice, since a host refuses for good but an accident passes."""
    first = trial()
    return first and {measure: reason for measure, reason in trial().items() if measure in first}


def trial() -> dict[Measure, str]:
    """Why measures fail, tried now; `enforced` remembers."""
    package = str(Path(__file__).resolve().parent.parent.parent)
    with tempfile.TemporaryDirectory(prefix="probe-mkevolve-") as scratch:  # no name that a sweep takes
        done = subprocess.run(
            [sys.executable, "-P", "-s", "-m", "mkevolve.backends.sandbox", scratch],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": package},
        )
    if done.returncode:
        raise BackendError(f"the sandbox cannot be tried: {done.stderr.strip()[-300:]}")
    return {Measure(name): reason for name, reason in json.loads(done.stdout).items()}


def _outcome(trial: Callable[[], str]) -> str:
    """What a trial in a child of this process returns; nothing where the child was killed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, trial().encode())
        finally:
            os._exit(0)
    os.close(write)
    said = b""
    while chunk := os.read(read, 1 << 12):
        said += chunk
    os.close(read)
    os.waitpid(pid, 0)
    return said.decode()


def _try(measure: Measure, base: frozenset[Measure], inside: Path, canary: Path) -> str:
    try:
        inner = start(Setup(Mode.INTERPRET, base | {measure}, inside))
        if inner:
            os.waitpid(inner, 0)
            return ""
        _CHECKS[measure](inside, canary)
    except (OSError, AttributeError, _Leak) as error:
        return (isinstance(error, OSError) and error.strerror) or str(error)
    return _HOLDS


def _check_user(inside: Path, canary: Path) -> None:
    forgo_privileges()


def _check_network(inside: Path, canary: Path) -> None:
    if any(name != "lo" for _, name in socket.if_nameindex()):
        raise _Leak("other interfaces are seen")


def _check_processes(inside: Path, canary: Path) -> None:
    if os.getpid() != 1 or [n for n in os.listdir("/proc") if n.isdecimal()] != ["1"]:
        raise _Leak("other processes are seen")
    if canary.exists():
        raise _Leak("other files are seen")
    _must_fail(lambda: os.mkdir("/written"))
    (inside / "written").write_text("")


def _check_landlock(inside: Path, canary: Path) -> None:
    landlock.restrict(landlock.Rules(write=(str(inside),)))
    _must_fail(canary.read_text)
    _must_fail(lambda: canary.write_text(""))
    (inside / "written").write_text("")


def _check_seccomp(inside: Path, canary: Path) -> None:
    seccomp.restrict(seccomp.Allowed())
    _must_fail(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    _must_fail(os.fork)


def _must_fail(action: Callable[[], object]) -> None:
    try:
        action()
    except OSError:
        return
    raise _Leak("the kernel does not enforce it")


_CHECKS: dict[Measure, Callable[[Path, Path], None]] = {
    Measure.USER: _check_user,
    Measure.NETWORK: _check_network,
    Measure.PROCESSES: _check_processes,
    Measure.LANDLOCK: _check_landlock,
    Measure.SECCOMP: _check_seccomp,
}

if __name__ == "__main__":
    main(sys.argv[1])
