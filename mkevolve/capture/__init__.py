"""From a model to functional ATen graphs, and from a call of the module to their tensors and back."""

from mkevolve.capture.calls import bind, call_of, constants_of, unflatten
from mkevolve.capture.check import check_capture, run_eager
from mkevolve.capture.variants import ONE_SIZE, capture
from mkevolve.models.inputs import normalise_call

__all__ = [
    "ONE_SIZE",
    "bind",
    "call_of",
    "capture",
    "check_capture",
    "constants_of",
    "normalise_call",
    "run_eager",
    "unflatten",
]
