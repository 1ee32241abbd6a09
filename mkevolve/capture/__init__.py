"""From a model to functional ATen graphs, and from a call of the module to their tensors and back."""

from mkevolve.capture.calls import bind, constants_of, normalise_call, unflatten
from mkevolve.capture.capture import ONE_SIZE, capture
from mkevolve.capture.check import check_capture, run_eager

__all__ = [
    "ONE_SIZE",
    "bind",
    "capture",
    "check_capture",
    "constants_of",
    "normalise_call",
    "run_eager",
    "unflatten",
]
