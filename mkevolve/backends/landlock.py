"""Landlock: the kernel lets this process and all that it starts reach the named paths only.

Written out here because the two packages that wrap these three calls are early releases of one author each;
the interface itself is stable and small.
"""

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from mkevolve.backends.linux import prctl, system_call

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ONLY_VERSION = 1
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_REG, _MAKE_SYM = 1 << 7, 1 << 8, 1 << 12  # not sockets, pipes or devices
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ALL = (1 << 16) - 1
_NEWER = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))  # version of the interface that knows the right
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _READ_FILE | _READ_DIR
_MAKE = _MAKE_DIR | _MAKE_REG | _MAKE_SYM
_WRITE = _WRITE_FILE | _TRUNCATE | _MAKE | _REMOVE_DIR | _REMOVE_FILE | _REFER
_TCP = 0b11  # bind and connect, since version 4
_SCOPES = 0b11  # abstract sockets and signals stay within the domain, since version 6


@dataclass(frozen=True, slots=True)
class Rules:
    """Files and folders, with all below them, and what may be done there; paths that do not exist are left
    out.
    """

    read: tuple[str, ...] = ()
    execute: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()  # read, write and ioctl


class _Attributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """Version of the kernel's interface; raises OSError where there is none."""
    return system_call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ONLY_VERSION))


def restrict(rules: Rules) -> None:
    """Confine this process for good. No TCP either, and no signal out of the domain, where that is known."""
    known = version()
    handled = _ALL
    for since, right in _NEWER:
        if known < since:
            handled &= ~right
    attributes = _Attributes(handled, _TCP if known >= 4 else 0, _SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = system_call(
        _CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    try:
        for paths, access in (
            (rules.read, _READ),
            (rules.execute, _READ | _EXECUTE),
            (rules.write, _READ | _WRITE),
            (rules.devices, _READ | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV),
        ):
            _allow(ruleset, paths, access & handled)
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
        system_call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, paths: Iterable[str], access: int) -> None:
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            _allow_one(ruleset, path, access)


def _allow_one(ruleset: int, path: str, access: int) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
    except NotADirectoryError:
        access &= _OF_FILES
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _Beneath(access, folder)
        system_call(
            _ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(folder)
