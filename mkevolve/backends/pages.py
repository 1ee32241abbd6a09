"""Memory of a tensor on pages of its own, which nobody can touch while they are shut."""

import ctypes
import mmap
import os

import numpy as np
import numpy.typing as npt

PAGE = mmap.PAGESIZE
_OPEN = mmap.PROT_READ | mmap.PROT_WRITE
_SHUT = 0  # PROT_NONE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Pages:
    """At least `size` bytes, zero at first. Touching them while they are shut ends the process by SIGSEGV.

    Raises MemoryError where there is not so much.
    """

    def __init__(self, size: int) -> None:
        size = -(-max(size, 1) // PAGE) * PAGE
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"{size} bytes: {error.strerror}") from error
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(memory, dtype=np.uint8)
        self._place = (self.bytes.ctypes.data, size)

    def shut(self) -> None:
        self._protect(_SHUT)

    def open(self) -> None:
        self._protect(_OPEN)

    def _protect(self, allowed: int) -> None:
        if _libc.mprotect(*self._place, allowed) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
