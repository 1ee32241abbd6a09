"""What a device's error messages say of the candidate: status and one line for people."""

from mkevolve.data.verdict import Status

# In the words of the CUDA driver's `cuGetErrorString`, as torch and Triton pass them on.
_FAULTS: tuple[tuple[str, Status, str], ...] = (
    (
        "illegal memory access",
        Status.OUT_OF_BOUNDS,
        "the device reports an illegal memory access: a load or store outside every tensor",
    ),
    (
        "invalid address space",
        Status.OUT_OF_BOUNDS,
        "the device reports an access in an invalid address space",
    ),
    ("misaligned address", Status.RUNTIME_ERROR, "the device reports a misaligned address"),
    ("illegal instruction", Status.RUNTIME_ERROR, "the device reports an illegal instruction"),
    ("unspecified launch failure", Status.RUNTIME_ERROR, "the device reports that a kernel failed"),
    ("device-side assert", Status.RUNTIME_ERROR, "an assertion failed in a kernel"),
    ("out of resource", Status.RESOURCE_ERROR, ""),
    ("out of memory", Status.RUNTIME_ERROR, ""),
)


def device_fault(message: str) -> tuple[Status, str] | None:
    """Read an exception's text; None where it tells of no device error."""
    lowered = message.lower()
    for words, status, said in _FAULTS:
        if words in lowered:
            return status, said or _first_line(message)
    if "cuda error" in lowered or "triton error [cuda]" in lowered:
        return Status.RUNTIME_ERROR, _first_line(message)
    return None


def _first_line(text: str) -> str:
    return next((line.strip()[:300] for line in text.splitlines() if line.strip()), "")
