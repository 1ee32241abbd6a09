"""Kernels that compile children have built, kept so that the device children of the same candidate need not
compile again.
"""

import hashlib
import json
import os
import shutil
import threading
from collections import OrderedDict
from pathlib import Path

from mkevolve.backends.processes import bytes_below
from mkevolve.backends.scratch import plain_text
from mkevolve.data.candidate import Configuration
from mkevolve.data.graph import TensorSpec

Variant = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]  # specs of activations and of parameters

_GROUP = "__grp__"  # Triton's list of the files of one binary, by absolute path
_MOST = 1 << 20  # bytes of such a list
_LARGEST = 64 << 20  # bytes of all that one job leaves


class Seeds:
    """A Triton cache for each candidate and configuration; the least recently used go beyond `limit`.

    Candidates share nothing, not even launcher stubs: candidate code ran where these were written.
    """

    def __init__(self, folder: Path, limit: int = 128) -> None:
        self._folder, self._limit = folder, limit
        self._known: OrderedDict[str, set[Variant]] = OrderedDict()
        self._lock = threading.Lock()

    def cache(self, source: str, configuration: Configuration) -> Path:
        """The folder that the children of a candidate read; it may not exist yet."""
        return self._folder / _key(source, configuration)

    def missing(self, source: str, configuration: Configuration, variants: set[Variant]) -> set[Variant]:
        """Which of `variants` nobody has compiled."""
        with self._lock:
            return variants - self._known.get(_key(source, configuration), set())

    def note(self, source: str, configuration: Configuration, variants: set[Variant]) -> None:
        """Remember that `variants` were compiled, be it in vain."""
        key = _key(source, configuration)
        with self._lock:
            self._known.setdefault(key, set()).update(variants)
            self._known.move_to_end(key)
            while len(self._known) > self._limit:
                shutil.rmtree(self._folder / self._known.popitem(last=False)[0], ignore_errors=True)

    def take(self, written: Path, source: str, configuration: Configuration) -> None:
        """Move what a compile child left in its cache here."""
        target = self.cache(source, configuration)
        if written.is_symlink():  # to a folder of the user's, by candidate code
            return
        if bytes_below(written) > _LARGEST:  # likewise: compiled kernels take some 100 KiB each
            return
        for group in written.iterdir() if written.is_dir() else ():
            if group.is_dir() and not group.is_symlink():
                _move(group, target / group.name)


def _move(group: Path, into: Path) -> None:
    """Move the plain files of one entry, and have its list of files name them where they are now."""
    into.mkdir(parents=True, exist_ok=True, mode=0o700)
    for file in group.iterdir():
        if not file.is_file() or file.is_symlink():
            continue
        if not file.name.startswith(_GROUP):
            os.replace(file, into / file.name)
            continue
        try:
            match json.loads(plain_text(file, _MOST)):
                case {"child_paths": dict(listed)}:
                    moved = {str(name): str(into / Path(str(path)).name) for name, path in listed.items()}
                    (into / file.name).write_text(json.dumps({"child_paths": moved}))
        except (ValueError, OSError, RecursionError):  # candidate code ran in the child that wrote it
            continue


def _key(source: str, configuration: Configuration) -> str:
    return hashlib.sha256(f"{configuration.text()}\n{source}".encode()).hexdigest()[:32]
