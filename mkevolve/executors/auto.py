"""The default executor: Ray where it is installed, else this process."""

from importlib.util import find_spec
from typing import Any

from mkevolve.executors.ray import RayExecutor
from mkevolve.executors.serial import SerialExecutor
from mkevolve.interfaces import Executor


def auto_executor(address: str | None = None, workers: int | None = None) -> Executor[Any, Any]:
    """Choose an executor; Ray itself is imported and started only when there is work."""
    return RayExecutor(address, workers) if find_spec("ray") else SerialExecutor()
