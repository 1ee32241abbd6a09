"""Namespaces: a process table, a network and a tree of files of our own, entered by a zygote before it loads
anything; all its children live in them.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mkevolve.backends.linux import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    change_root,
    mount,
    set_readonly,
    unshare,
)

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def own_user() -> None:
    """Enter a user namespace, in which this process has every capability; its user and group stay."""
    user, group = os.geteuid(), os.getegid()
    unshare("user")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def own_network() -> None:
    """Enter a network with nothing in it, and no shared memory, queues or names of the host."""
    unshare("net", "ipc", "uts")


def own_files(
    base: Path, visible: Iterable[str], writable: Path, kept: Path, devices: Iterable[str] = ()
) -> None:
    """See only `visible`, read-only, and `writable`, with a /proc of this process's own process namespace.

    `kept`, a folder in `writable`, is read-only. `base` is an empty folder, where the new root is built. With
    `devices` a process may write to its own entries of /proc, which CUDA insists on.
    """
    devices = tuple(devices)
    unshare("mount")
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    root = str(base)
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755")
    for path in _topmost(visible):
        _show(root, path)
    for device in (*_DEVICES, *devices):
        _show(root, device)
    _show(root, str(writable), MS_BIND)  # without `base`, which may lie in it
    _show(root, str(kept))
    os.mkdir(f"{root}/proc")
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    change_root(root)
    set_readonly("/", readonly=True, recursive=True)
    set_readonly(str(writable), readonly=False, recursive=False)
    if devices:
        _open_processes()
    os.chdir(writable)


def _open_processes() -> None:
    """Let /proc be written but for what is not a process's: where root runs us, that would be the host's."""
    for name in os.listdir("/proc"):
        path = f"/proc/{name}"
        if not name.isdecimal() and not os.path.islink(path):
            mount(path, path, None, MS_BIND)  # this mount stays read-only
    set_readonly("/proc", readonly=False, recursive=False)


def _topmost(paths: Iterable[str]) -> list[str]:
    """The paths that lie below no other one."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(Path(path).is_relative_to(other) for other in kept):
            kept.append(path)
    return kept


def _show(root: str, path: str, how: int = MS_BIND | MS_REC) -> None:
    """Let `path`, where it exists, be seen below the new root; a symbolic link as one."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    target = root + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if stat.S_ISLNK(mode):
        with suppress(FileExistsError):
            os.symlink(os.readlink(path), target)
        return
    if stat.S_ISDIR(mode):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    mount(path, target, None, how)


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
