"""The parts of a call on a device that need none."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from mkevolve.backends import device_run, device_seam
from mkevolve.backends.allocations import Allocations
from mkevolve.backends.device_memory import DeviceMemory
from mkevolve.backends.fault import CandidateFault
from mkevolve.backends.memory import OutOfBoundsError
from mkevolve.backends.seal import seal
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case

ILLEGAL = RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (CandidateFault(Status.NO_EFFECT, "none"), Status.NO_EFFECT, "none"),
        (OutOfBoundsError("stores outside of t0", "t0", 7), Status.OUT_OF_BOUNDS, "stores outside of t0"),
        (ILLEGAL, Status.OUT_OF_BOUNDS, "illegal memory access"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), Status.RUNTIME_ERROR, "out of memory"),
        (ValueError("three"), Status.RUNTIME_ERROR, "ValueError: three"),
    ],
)
def test_whatever_is_raised_becomes_a_result(error, status, words):
    result = device_run.blamed(error, "candidate.py")
    assert result.status is status
    assert words in result.message


def test_a_stray_store_is_placed():
    result = device_run.blamed(OutOfBoundsError("stores", "t0", 7), "candidate.py")
    assert (result.tensor, result.index) == ("t0", (7,))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ([torch.zeros(2, 3)], ""),
        ([torch.tensor([[0.0, 0, 0], [0, -0.0, 0]])], "result 0 differs first at [1, 1]"),
        ([torch.zeros(3, 2).t()], "shapes, strides or dtypes differ"),
        ([torch.zeros(2, 3).double()], "shapes, strides or dtypes differ"),
        ([torch.zeros(2, 3), torch.zeros(1)], "shapes, strides or dtypes differ"),
    ],
)
def test_results_of_two_calls_are_compared_by_their_bits(other, words):
    assert device_run._difference([torch.zeros(2, 3)], other) == words


@pytest.fixture
def call(monkeypatch):
    monkeypatch.setattr(device_run, "_seal", seal())
    case = Case("key", "check_0", (), ())
    watch = Allocations(lambda tensor, filled: tensor, lenient=False)
    return device_run._Call(case, frozenset(), DeviceMemory(0, "cpu"), 7, watch)


def test_launches_are_counted_but_for_those_of_nothing(call):
    for kernel, grid in (("a", (1, 1, 1)), ("b", (4, 2, 1)), ("a", (2, 1, 1)), ("c", (0, 1, 1))):
        with call.launch(kernel, grid, 7) as allowed:
            assert allowed
            assert call.watch.suspended
    assert not call.watch.suspended
    assert call.launches == {"a": 2, "b": 1, "c": 0}
    assert call.fault is None


def test_the_first_fault_of_a_launch_is_kept(call, monkeypatch):
    with call.launch("a", (1, 1, 1), 8):
        pass
    monkeypatch.setattr("os.getcwd", lambda: "/")
    with call.launch("b", (1, 1, 1), 7):
        pass
    assert call.fault.status is Status.STATIC_ERROR
    assert call.fault.message == "kernel a is launched on another stream"


def test_what_is_replaced_before_a_launch_is_a_fault(call, monkeypatch):
    monkeypatch.setattr("os.getcwd", lambda: "/")
    with call.launch("a", (1, 1, 1), 7):
        pass
    assert call.fault.status is Status.STATE_CHANGED
    assert call.fault.message == "changes os.getcwd before a launch"


def test_decoys_are_there_during_a_launch_only(call):
    call.case = replace(call.case, decoy=True)
    x = call.memory.place("x0", torch.arange(3.0))
    with call.launch("a", (1, 1, 1), 7):
        assert x.tolist() == [1.5, 0.75, 0.0]
    assert x.tolist() == [0.0, 1.0, 2.0]


class Launched:
    """Stands for Triton's own launcher."""

    def __init__(self, source, metadata) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __call__(self, *args: object) -> None:
        self.calls.append(args)


class Metadata:
    name = "kernel"


@pytest.fixture
def launcher(monkeypatch):
    monkeypatch.setattr(device_seam, "CudaLauncher", Launched)
    return device_seam._Launcher(None, Metadata())


def test_launches_are_watched_and_can_be_left_out(launcher):
    seen: list[object] = []

    def watch(allowed):
        @contextmanager
        def around(kernel, grid, stream):
            seen.append((kernel, grid, stream))
            yield allowed
            seen.append("after")

        return around

    launcher(1, 2, 3, 9, "function", "x")
    with device_seam.watched(watch(True)):
        launcher(4, 1, 1, 9, "function", "y")
    with device_seam.watched(watch(False)):
        launcher(5, 1, 1, 9, "function", "z")
    launcher(6, 1, 1, 9, "function", "w")
    assert [call[0] for call in launcher._launch.calls] == [1, 4, 6]
    assert seen == [("kernel", (4, 1, 1), 9), "after", ("kernel", (5, 1, 1), 9), "after"]
