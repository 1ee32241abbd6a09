import pytest

from mkevolve.backends.device_faults import device_fault
from mkevolve.data.verdict import Status

TORCH = (
    "AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    "CUDA kernel errors might be asynchronously reported at some other API call\n"
)


@pytest.mark.parametrize(
    ("message", "status", "words"),
    [
        (TORCH, Status.OUT_OF_BOUNDS, "illegal memory access"),
        (
            "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",
            Status.OUT_OF_BOUNDS,
            "illegal memory access",
        ),
        ("RuntimeError: Triton Error [CUDA]: misaligned address", Status.RUNTIME_ERROR, "misaligned"),
        ("AcceleratorError: CUDA error: unspecified launch failure", Status.RUNTIME_ERROR, "kernel failed"),
        (
            "OutOfResources: out of resource: shared memory, Required: 262144, Hardware limit: 232448.",
            Status.RESOURCE_ERROR,
            "Required: 262144",
        ),
        (
            "OutOfMemoryError: CUDA out of memory. Tried to",
            Status.RUNTIME_ERROR,
            "CUDA out of memory. Tried to",
        ),
        ("RuntimeError: Triton Error [CUDA]: invalid argument", Status.RUNTIME_ERROR, "invalid argument"),
        ("AcceleratorError: CUDA error: device-side assert triggered", Status.RUNTIME_ERROR, "assertion"),
    ],
)
def test_device_errors_are_told_apart(message, status, words):
    found = device_fault(message)
    assert found is not None
    assert found[0] is status
    assert words in found[1]
    assert "\n" not in found[1]


@pytest.mark.parametrize("message", ["ValueError: three", "TypeError: run() takes 2 arguments", ""])
def test_other_errors_are_left_alone(message):
    assert device_fault(message) is None
