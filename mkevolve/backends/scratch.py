"""Scratch folders in the system's temporary folder: one owner each, known by a lock, removed after it.

Candidate code leaves files there: what it left is removed and read with care.
"""

import fcntl
import os
import stat
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
        remove(self.path)
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
                remove(path)
        except OSError:  # its owner lives, or the file system has no locks
            continue
        finally:
            os.close(lock)


def remove(folder: Path) -> None:
    """Remove a folder with all in it, however deep and with whatever permissions; links are not followed.

    Folders are moved up to the top before they are emptied: no path grows long and nothing recurs.
    """
    pending = [folder]
    count, unique = 0, os.urandom(8).hex()  # no name that is there
    while pending:
        top = pending.pop()
        for entry in _entries(top):
            with suppress(OSError):  # another process removes the same
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                elif top == folder:
                    pending.append(Path(entry.path))
                else:
                    count += 1
                    os.chmod(entry.path, 0o700)
                    os.rename(entry.path, folder / f"{unique}-{count}")
                    pending.append(folder / f"{unique}-{count}")
        if top != folder:
            with suppress(OSError):
                os.rmdir(top)
    with suppress(OSError):
        os.rmdir(folder)


def plain_text(path: Path, most: int = 1 << 16) -> str:
    """The last bytes of a regular file as text; empty for what is none, or is not there."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            return ""
        return os.pread(handle, most, max(0, facts.st_size - most)).decode(errors="replace")
    finally:
        os.close(handle)


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        os.chmod(folder, 0o700)
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
