"""The calls to Linux that Python 3.11 has no name for, through the C library; each raises OSError."""

import ctypes
import os
import platform
import signal
from ctypes import c_int, c_uint, c_uint32, c_ulong

_libc = ctypes.CDLL(None, use_errno=True)

NEW_NAMESPACE = {
    "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000,
    "mount": 0x00020000,
}  # fmt: skip
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x8, 0x1000, 0x4000, 0x40000
MACHINE = platform.machine()

_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442  # the same number on every machine, like all system calls since 2019
_MOUNT_ATTR_RDONLY = 1
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES = 64


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", c_uint32), ("pid", c_int))


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user"))


def system_call(number: int, *arguments: object) -> int:
    """Make a system call by its number."""
    return _checked("syscall", _libc.syscall(number, *arguments))


def prctl(option: int, *arguments: int) -> None:
    """Set something of this thread."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    _checked("prctl", _libc.prctl(c_int(option), *map(c_ulong, padded)))


def die_with_parent() -> None:
    """Have this process killed when the thread that forked it ends."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def become_reaper() -> None:
    """Make orphaned descendants children of this process, so that `setsid` is no escape."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def unshare(*namespaces: str) -> None:
    """Enter new namespaces, named as in `NEW_NAMESPACE`; that of processes holds for children only."""
    flags = 0
    for name in namespaces:
        flags |= NEW_NAMESPACE[name]
    _checked("unshare", _libc.unshare(c_int(flags)))


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount a file system, or change how `target` is mounted."""
    words = [w.encode() if w is not None else None for w in (source, target, kind)]
    _checked(f"mount {target}", _libc.mount(*words, c_ulong(flags), options.encode() or None))


def set_readonly(path: str, readonly: bool, recursive: bool) -> None:
    """Make a mount (with those below it) read-only or writable, in this mount namespace alone."""
    change = _MountAttributes()
    if readonly:
        change.set = _MOUNT_ATTR_RDONLY
    else:
        change.clear = _MOUNT_ATTR_RDONLY
    flags = _AT_RECURSIVE if recursive else 0
    size = c_ulong(ctypes.sizeof(change))
    at, where = c_int(_AT_FDCWD), ctypes.c_char_p(path.encode())
    number = _libc.syscall(c_int(_MOUNT_SETATTR), at, where, c_uint(flags), ctypes.byref(change), size)
    _checked(f"mount_setattr {path}", number)


def change_root(path: str) -> None:
    """Make a mount the root of this mount namespace and let go of the old one."""
    os.chdir(path)
    _checked("pivot_root", _libc.pivot_root(b".", b"."))  # the old root now lies upon the new one
    _checked("umount", _libc.umount2(b".", c_int(_MNT_DETACH)))
    os.chdir("/")


def forgo_privileges() -> None:
    """Give up every capability for good, also for what this process executes."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(_CAPABILITIES):
        if _libc.prctl(_PR_CAPBSET_DROP, c_ulong(capability), 0, 0, 0) != 0:
            break  # beyond the last one that this kernel knows, or not ours to drop and so not held
    header = _CapabilityHeader(_CAPABILITY_VERSION, 0)
    none = (c_uint32 * 6)()
    _checked("capset", _libc.capset(ctypes.byref(header), ctypes.byref(none)))


def _checked(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
