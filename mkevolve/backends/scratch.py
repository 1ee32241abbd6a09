"""Scratch folders in the system's temporary folder: one owner each, known by a lock, removed after it."""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "mkevolve-"


class Scratch:
    """A new folder that this process owns until `release`, or until it ends in any way.

    The lock, unlike a process id, also tells the owner's death in another container with the same folder.
    """

    def __init__(self) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self.path.exists():  # else a sweep came between the two
                return
            os.close(self._lock)

    def release(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            os.close(self._lock)


def sweep() -> None:
    """Remove the scratch folders of this user whose owner is gone, such as after a power cut or `kill -9`."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # gone, another user's, or no folder
            continue
        try:
            if os.fstat(lock).st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:  # its owner lives, or the file system has no locks
            continue
        finally:
            os.close(lock)
