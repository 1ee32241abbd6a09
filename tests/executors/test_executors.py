"""The executors under their contract."""

import subprocess
import sys
from pathlib import Path

import pytest
from executor_contract import ExecutorContract

from mkevolve.executors.serial import SerialExecutor


class TestSerialExecutor(ExecutorContract):
    @pytest.fixture
    def executor(self) -> SerialExecutor:
        return SerialExecutor()


class TestRayExecutor(ExecutorContract):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        ray = pytest.importorskip("ray")
        from mkevolve.executors.ray import RayExecutor

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # workers import the contract's functions
            yield RayExecutor(workers=2)
            ray.shutdown()

    def test_tasks_run_at_once(self, executor) -> None:
        seen = [task for task, _ in executor.run(_slow, ["a", "b"])]
        assert set(seen[:2]) == {"a", "b"}  # not all of one before the other


def _slow(task: str):
    import time

    for step in range(3):
        time.sleep(0.2)
        yield step


def test_ray_leaves_this_process_its_signal_handlers() -> None:
    pytest.importorskip("ray")
    code = (
        "import signal\n"
        "from mkevolve.executors.ray import RayExecutor\n"
        "own = lambda *_: None\n"
        "signal.signal(signal.SIGTERM, own)\n"
        "RayExecutor()._start()\n"
        "assert signal.getsignal(signal.SIGTERM) is own\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
