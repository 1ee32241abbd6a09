"""What the operating system denies candidate code: the measures, and taking them.

A zygote enters namespaces before it loads anything (`start`); each child gives up what is left just before
candidate code runs (`confine`). Which measures the host offers is found out by `sandbox.py`.

What remains open to a candidate that reaches arbitrary Python in its child, which the static rules deny: it
can use the processor, memory and disk of its limits, read the installed software and the inputs that all
candidates of a search share, and, in a child that compiles, start programs in the same confinement (the
dynamic loader starts any file that can be read).
"""

import os
import pwd
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from mkevolve.backends import landlock, namespaces, seccomp
from mkevolve.backends.linux import die_with_parent, forgo_privileges, unshare


class Mode(StrEnum):
    """What the children of a zygote do: each kind needs, hence is denied, something else."""

    INTERPRET = "interpret"
    COMPILE = "compile"
    COMPILE_DEVICE = "compile-device"  # likewise, with what launches on the device here
    DEVICE = "device"


class Measure(StrEnum):
    """One way to confine a process, by what is said where the host does not offer it."""

    USER = "user namespace"
    NETWORK = "network namespace"
    PROCESSES = "process and mount namespaces"
    LANDLOCK = "Landlock"
    SECCOMP = "seccomp"


_ALLOWED = {
    Mode.INTERPRET: seccomp.Allowed(),
    Mode.COMPILE: seccomp.Allowed(processes=True, threads=True),
    Mode.COMPILE_DEVICE: seccomp.Allowed(processes=True, threads=True),
    Mode.DEVICE: seccomp.Allowed(processes=True, threads=True, driver=True),
}
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store", "/etc/ld.so.cache",
    "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/etc/passwd",
    "/etc/group", "/etc/nsswitch.conf", "/sys/devices/system",
)  # fmt: skip
_NULL = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full")
_GPU = ("/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/kfd", "/dev/dri/*")
_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
_COMPILERS = ("gcc", "cc", "clang", "as", "ld", "ld.bfd", "ld.gold", "ld.lld", "ptxas", "cuobjdump")
_COMPILER_PARTS = ("/usr/lib/gcc", "/usr/libexec/gcc")
INPUTS = "inputs"  # folder of the scratch folder that every child may read
KERNELS = f"{INPUTS}/kernels"


@dataclass(frozen=True, slots=True)
class Setup:
    """What the children of a zygote are for, how they are confined, and the folder of their caller."""

    mode: Mode
    measures: frozenset[Measure]
    scratch: Path


def start(setup: Setup) -> int:
    """Enter the namespaces of a zygote.

    Returns 0 in the process that goes on as the zygote. Where it must be another one, the first of its
    process namespace, the caller gets its process id, stays outside with the files of the host, and waits.
    """
    measures, scratch = setup.measures, setup.scratch
    if Measure.USER in measures:
        namespaces.own_user()
    if Measure.PROCESSES in measures:
        unshare("pid")
        zygote = os.fork()
        if zygote:
            return zygote
        die_with_parent()
    if Measure.NETWORK in measures:
        namespaces.own_network()
    if Measure.PROCESSES in measures:
        base = Path(tempfile.mkdtemp(prefix=f"root-{setup.mode}-", dir=scratch))
        namespaces.own_files(base, visible(setup.mode), scratch, scratch / INPUTS, _gpu(setup.mode))
    _rules(setup.mode, scratch, scratch)  # remembers what is the same in every child
    if Measure.SECCOMP in measures:
        seccomp.code(_ALLOWED[setup.mode])
    return 0


def confine(setup: Setup, folder: Path) -> None:
    """Give up for good what a child does not need; it may write below `folder` only."""
    if Measure.LANDLOCK in setup.measures:
        landlock.restrict(_rules(setup.mode, setup.scratch, folder))
    if setup.measures:
        forgo_privileges()
    if Measure.SECCOMP in setup.measures:
        seccomp.restrict(_ALLOWED[setup.mode])


@cache
def visible(mode: Mode) -> tuple[str, ...]:
    """Files and folders outside scratch that a child may read: installed software, nothing of the user's."""
    paths = sysconfig.get_paths()
    python = [
        *(sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix),
        *(paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(place for name in ("mkevolve", "torch", "triton", "numpy") for place in _package(name)),
    ]
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    named = [*libraries, os.environ.get("CUDA_HOME", "")]
    wanted = [*python, *(p for p in named if os.path.isabs(p) and not _holds_home(p))]
    if mode is Mode.DEVICE:
        wanted += [p for p in ("/sys", "/opt/rocm", "/etc/OpenCL") if os.path.exists(p)]
    return tuple(dict.fromkeys((*_SYSTEM, *wanted, *map(os.path.realpath, wanted))))


def _rules(mode: Mode, scratch: Path, folder: Path) -> landlock.Rules:
    read = (*visible(mode), "/proc", *_NULL, str(scratch / INPUTS))
    devices = ("/dev/null", *_gpu(mode), *(("/proc/self",) if mode is Mode.DEVICE else ()))
    return landlock.Rules(read, () if mode is Mode.INTERPRET else _programs(), (str(folder),), devices)


@cache
def _programs() -> tuple[str, ...]:
    """What a child that compiles may execute."""
    found = [path for name in _COMPILERS if (path := which(name))]
    places = [*(os.path.realpath(p) for p in (*found, *_LOADERS)), *_COMPILER_PARTS]
    return tuple(dict.fromkeys((*places, *(f"{p}/backends/nvidia/bin" for p in _package("triton")))))


def _package(name: str) -> tuple[str, ...]:
    spec = find_spec(name)
    return tuple(spec.submodule_search_locations or ()) if spec else ()


def _gpu(mode: Mode) -> tuple[str, ...]:
    return tuple(p for pattern in _GPU for p in glob(pattern)) if mode is Mode.DEVICE else ()


def _holds_home(path: str) -> bool:
    """Whether showing a folder would show somebody's home: what a search path names by mistake."""
    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir  # $HOME is the scratch folder in a zygote
    except KeyError:
        home = "/"
    return Path(home).resolve().is_relative_to(os.path.realpath(path))
