"""Seccomp: the kernel refuses this process, and all that it starts, the system calls that nobody here needs.

The filter is written out here because the Python packages for it need libseccomp, which many hosts lack. It
refuses what is named, and all system calls that are newer than the list.
"""

import ctypes
import errno
import os
import socket
import struct
from dataclasses import dataclass
from functools import cache

from mkevolve.backends.linux import MACHINE, prctl

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2

# Numbers on x86_64 and on aarch64, whose table lacks the oldest calls.
_NETWORK = {
    "socketpair": (53, 199), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}  # fmt: skip
_OTHER_PROCESSES = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "setpriority": (141, 140),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "sched_setparam": (142, 118),
    "ioprio_set": (251, 30), "migrate_pages": (256, 238), "move_pages": (279, 239),
}  # fmt: skip
_KERNEL = {
    "perf_event_open": (298, 241), "bpf": (321, 280), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "sethostname": (170, 161), "setdomainname": (171, 162),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "iopl": (172, None), "ioperm": (173, None), "syslog": (103, 116),
    "vhangup": (153, 58), "personality": (135, 92), "modify_ldt": (154, None), "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18), "memfd_secret": (447, 447),
}  # fmt: skip
_NAMESPACES = {
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "open_tree": (428, 428), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433),
}  # fmt: skip
_FILES = {
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263), "mknod": (133, None), "mknodat": (259, 33),
}  # fmt: skip
_SHARED_MEMORY = {  # outlives the process and is not in its address space: no limit would count it
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "memfd_create": (319, 279),
}  # fmt: skip
_ATTRIBUTES = {  # Landlock lets the owner of a file change them anywhere, and early versions empty it
    "truncate": (76, 45),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "utime": (132, None), "utimes": (235, None),
    "utimensat": (280, 88), "futimesat": (261, None),
}  # fmt: skip
_CREATION = {
    "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "execve": (59, 221), "execveat": (322, 281),
}  # fmt: skip
_SOCKET, _CLONE, _CLONE3, _KILL, _TGKILL = (41, 198), (56, 220), (435, 435), (62, 129), (234, 131)
_PRLIMIT, _SETAFFINITY = (302, 261), (203, 122)
# Having a file or a socket signal another process when data arrive.
_FCNTL, _IOCTL = (72, 25), (16, 29)
_SET_OWNER, _SET_OWNER_BY_IOCTL = (8, 15), (0x8901, 0x8902)
_NEWEST = 462  # the last system call that was looked at
_NEW_NAMESPACES = 0x7E020080

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_NUMBER, _ARCH, _ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24  # offsets in what a filter sees
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL_PROCESS, _ALLOW, _FAIL = 0x80000000, 0x7FFF0000, 0x00050000
_DENIED, _UNKNOWN = _FAIL | errno.EPERM, _FAIL | errno.ENOSYS


@dataclass(frozen=True, slots=True)
class Allowed:
    """What this kind of child needs beyond computing."""

    processes: bool = False  # start programs
    threads: bool = False
    driver: bool = False  # anonymous files, attributes, local sockets, without which CUDA does not start


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def restrict(allowed: Allowed) -> None:
    """Confine this process for good; it may signal itself alone."""
    whole = code(allowed) + _own(os.getpid()) + _step(_RETURN, _ALLOW)
    program = _Program(len(whole) // 8, whole)
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program))


@cache
def code(allowed: Allowed) -> bytes:
    """The part of the filter that is the same in every child of its kind: a zygote may make it beforehand."""
    if MACHINE not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"seccomp: no list of system calls for {MACHINE}")
    architecture, column = _ARCHITECTURES[MACHINE]
    denied = _NETWORK | _OTHER_PROCESSES | _KERNEL | _NAMESPACES | _FILES
    if not allowed.driver:
        denied |= _ATTRIBUTES | _SHARED_MEMORY
    if not allowed.processes:
        denied |= _CREATION
    if allowed.threads:
        denied.pop("clone", None)
    code = _step(_LOAD, _ARCH) + _step(_EQUAL, architecture, 1, 0) + _step(_RETURN, _KILL_PROCESS)
    code += _step(_LOAD, _NUMBER) + _step(_AT_LEAST, _NEWEST + 1, 0, 1) + _step(_RETURN, _UNKNOWN)
    code += _step(_EQUAL, _CLONE3[column], 0, 1) + _step(_RETURN, _UNKNOWN)  # then the C library takes clone
    for numbers in denied.values():
        number = numbers[column]
        if number is not None:
            code += _step(_EQUAL, number, 0, 1) + _step(_RETURN, _DENIED)
    code += _refused(_FCNTL[column], _SET_OWNER) + _refused(_IOCTL[column], _SET_OWNER_BY_IOCTL)
    return code + _socket(_SOCKET[column], allowed) + _clone(_CLONE[column], allowed)


def _refused(number: int, values: tuple[int, ...]) -> bytes:
    """A call that takes any second argument but these."""
    body = _step(_LOAD, _SECOND_ARGUMENT)
    body += b"".join(_step(_EQUAL, value, len(values) - i, 0) for i, value in enumerate(values))
    body += _step(_RETURN, _ALLOW) + _step(_RETURN, _DENIED)
    return _step(_EQUAL, number, 0, len(body) // 8) + body


def _socket(number: int, allowed: Allowed) -> bytes:
    """None; or local ones, which reach nobody where the files and the network are our own."""
    code = _step(_LOAD, _ARGUMENT) + _step(_EQUAL, socket.AF_UNIX, 1, 0) if allowed.driver else b""
    code += _step(_RETURN, _DENIED) + _step(_RETURN, _ALLOW)
    return _step(_EQUAL, number, 0, len(code) // 8) + code


def _clone(number: int, allowed: Allowed) -> bytes:
    """No new namespaces; threads alone where processes are not allowed."""
    code = _step(_LOAD, _ARGUMENT) + _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1) + _step(_RETURN, _DENIED)
    if not allowed.processes:
        code += _step(_ANY_BIT, 0x10000, 1, 0) + _step(_RETURN, _DENIED)  # CLONE_THREAD
    code += _step(_RETURN, _ALLOW)
    return _step(_EQUAL, number, 0, len(code) // 8) + code


def _own(pid: int) -> bytes:
    """Calls that name a process may name this one only; 0 is this one where it is not its whole group."""
    column = _ARCHITECTURES[MACHINE][1]
    code = b""
    for numbers, itself in (
        (_KILL, (pid,)),
        (_TGKILL, (pid,)),
        (_PRLIMIT, (0, pid)),
        (_SETAFFINITY, (0, pid)),
    ):
        checks = b"".join(_step(_EQUAL, value, len(itself) - i, 0) for i, value in enumerate(itself))
        body = _step(_LOAD, _ARGUMENT) + checks + _step(_RETURN, _DENIED) + _step(_RETURN, _ALLOW)
        code += _step(_EQUAL, numbers[column], 0, len(body) // 8) + body
    return code


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
