"""Beside `seam.py` and `binary_seam.py` the only module that touches private Triton names: the launcher that
Triton calls on a device, and what a process needs so that its forked children launch quickly. Seen to work on
Triton 3.6.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from subprocess import CalledProcessError
from types import SimpleNamespace
from typing import Any

from triton import knobs
from triton.backends.nvidia.driver import CudaDriver, CudaLauncher
from triton.runtime import driver

from mkevolve.backends import seam
from mkevolve.errors import BackendError

Watch = Callable[[str, tuple[int, int, int], int], AbstractContextManager[bool]]

_watch: Watch | None = None


class _Launcher:
    """What Triton calls to launch one compiled kernel; it asks the watch first."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self._name = str(metadata.name)
        self._launch = CudaLauncher(source, metadata)

    def __call__(self, x: int, y: int, z: int, stream: int, *rest: Any) -> None:
        with nullcontext(True) if _watch is None else _watch(self._name, (x, y, z), stream) as allowed:
            if allowed:
                self._launch(x, y, z, stream, *rest)


def preload() -> None:
    """Load Triton's driver stub and warm its compiler, without initialising CUDA: the process will fork.

    Raises `BackendError` where CUDA's driver or a C compiler is missing.
    """
    seam.warm()
    made = _driver()  # `driver.active` would ask torch whether there is a device, which initialises CUDA
    made.launcher_cls = _Launcher
    driver.set_active(made)


def build_launchers() -> None:
    """From now on build the launcher stub of each kernel that is compiled in this process or a child.

    Where the stub is generated code (Triton up to 3.6), a child on the device that may execute nothing finds
    it in the cache together with the kernel.
    """

    made = _driver()

    def compiled(*, src: Any, metadata: dict[str, Any], **_: Any) -> None:
        before = driver._active
        driver.set_active(made)  # newer launchers are no generated code, but functions of this driver
        try:
            CudaLauncher(src, SimpleNamespace(**metadata))
        finally:
            driver._active = before

    knobs.compilation.listener = compiled


def _driver() -> Any:
    try:
        return CudaDriver()
    except (AssertionError, ImportError, OSError, RuntimeError, CalledProcessError) as error:
        reason = " ".join(str(error).split())
        raise BackendError(f"CUDA cannot be used here: {type(error).__name__}: {reason}") from error


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """While active, every launch runs inside of `watch(kernel, grid, stream)`; where that is False, not."""
    global _watch  # Triton makes launchers itself, so they have no other way to know of the call they serve
    _watch = watch
    try:
        yield
    finally:
        _watch = None
