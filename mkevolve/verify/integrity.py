"""Whether a result was made by the candidate's own launches, from its inputs, and by nothing else.

What a child sees while it runs a candidate, without the static step:
- torch calls between launches, by dispatch (`backends/allocations.py`); not those under disabled modes,
- any touch of a tensor's memory between launches, since its pages are shut (`backends/pages.py`): numpy,
  ctypes, torch under disabled modes, keys made of content, flags written by a probe kernel, tensors kept
  from earlier,
- loads and stores outside of the tensor that a pointer was made from (`backends/memory.py`),
- bytes of inputs, weights and margins that changed; global state, and functions of torch, Triton and our
  own that were replaced (`backends/torch_state.py`, `seal.py`); hooks, threads and timers before each
  launch,
- what is right with no launch, or with launches that read other activations (`without_launches`,
  `by_other_means`).

What it cannot see: candidate and checks are Python in one process. Code that opens pages by a system call
or through the objects of the child, and learns from the child's frames which call is a replay, computes
on the host unseen; so does code that replaces a function and puts it back before anybody looks, or that
is called inside of a launch in a way not listed above. All of it needs an import beyond torch, triton and
math, an attribute that starts with an underscore, a name of the interpreter, or Python in a jit body that
is not Triton: the static step refuses these in every file before it runs, the compiler refuses the last,
and what is measured is the launch plan, not the candidate. A forged answer also has to pass the frames'
seal (`backends/wire.py`). `tests/cheats` has a file for each of these, with the gates that stop it alone.
"""

from collections.abc import Iterator

import torch

from mkevolve.data.graph import TensorSpec
from mkevolve.data.verdict import Status
from mkevolve.interfaces import CaseResult
from mkevolve.verify.chunks import Index, chunks
from mkevolve.verify.expected import Expected
from mkevolve.verify.numeric import compare, shape_fault


def side_effects(result: CaseResult) -> Iterator[tuple[Status, str]]:
    """What a call changed besides its results."""
    if result.inputs_changed:
        yield Status.INPUT_WRITTEN, f"writes to its input {', '.join(result.inputs_changed)}"
    if result.state_changed:
        yield Status.STATE_CHANGED, f"changes {', '.join(result.state_changed)}"


def first_difference(
    a: tuple[torch.Tensor, ...],
    b: tuple[torch.Tensor, ...],
    written: tuple[torch.Tensor, ...] | None = None,
) -> tuple[int, tuple[int, ...]] | None:
    """The number of the first result that differs bitwise, and the index there; None where none does.

    Only elements that were `written` are compared (None = all).
    """
    for number, (one, two) in enumerate(zip(a, b, strict=False)):
        if one.shape != two.shape or one.dtype != two.dtype:
            return number, ()
        for index in chunks(tuple(one.shape)):
            differs = _bits(one[index]) != _bits(two[index])
            if written is not None:
                differs &= written[number][index]
            if bool(differs.any()):
                return number, _start(index, differs)
    return None if len(a) == len(b) else (min(len(a), len(b)), ())


def _start(index: Index, differs: torch.Tensor) -> tuple[int, ...]:
    inside = [int(i) for i in differs.nonzero()[0]]
    outer = [i for i in index if isinstance(i, int)]
    if inside and index and isinstance(index[-1], slice):
        inside[0] += index[-1].start
    return (*outer, *inside)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor)
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.contiguous().view(width)


def without_launches(
    first: tuple[torch.Tensor, ...], second: tuple[torch.Tensor, ...], expected: tuple[Expected, ...]
) -> str:
    """Say which result is right although no kernel ran; the two runs differ in the poison of allocations.

    A result counts as made by something else where it is right as a whole in both runs, or where elements
    are equal in both: all that is allocated holds the poison of its run, `zeros` and `full` too.
    """
    for number, (one, two, want) in enumerate(zip(first, second, expected, strict=True)):
        if not want.spec.numel or shape_fault((one, two), (want.spec, want.spec)):
            continue
        both = [compare((given,), (want,), explain=False) for given in (one, two)]
        if all(c.status is Status.PASSED and c.compared for c in both):
            return f"result {number} is right with every launch disabled"
        if bool((_bits(one) == _bits(two)).any()):
            return f"elements of result {number} are made without any launch"
    return ""


def by_other_means(outputs: tuple[torch.Tensor, ...], expected: tuple[Expected, ...]) -> str:
    """Say that results are right although every kernel read other activations (`Case.decoy`).

    For a candidate that refuses to go on where no launch happens, which is no evidence in itself.
    """
    if shape_fault(outputs, tuple(e.spec for e in expected)):
        return ""
    found = compare(outputs, expected, explain=False)
    if found.status is Status.PASSED and found.compared:
        return "the results are right although every kernel read other activations"
    return ""


def impostors(activations: tuple[torch.Tensor, ...], expected: tuple[Expected, ...]) -> frozenset[str]:
    """Names of trivial results (zeros, a constant, an input) that would pass this case."""
    found = set()
    if _passes([torch.zeros(e.spec.shape, dtype=_dtype(e.spec)) for e in expected], expected):
        found.add("zeros")
    if _passes([torch.full(e.spec.shape, _mean(e), dtype=_dtype(e.spec)) for e in expected], expected):
        found.add("a constant")
    for number, given in enumerate(activations):
        fits = [given if tuple(given.shape) == e.spec.shape else None for e in expected]
        results = [g.to(_dtype(e.spec)) for g, e in zip(fits, expected, strict=True) if g is not None]
        if len(results) == len(expected) and _passes(results, expected):
            found.add(f"x{number} unchanged")
    return frozenset(found)


def _passes(results: list[torch.Tensor], expected: tuple[Expected, ...]) -> bool:
    found = compare(tuple(results), expected, explain=False)
    return found.status is Status.PASSED and found.compared > 0


def _mean(want: Expected) -> float:
    values = want.reference[want.reference.isfinite()] if want.spec.is_float else want.reference
    return float(values.double().mean()) if values.numel() else 0.0


def _dtype(spec: TensorSpec) -> torch.dtype:
    found: torch.dtype = getattr(torch, spec.dtype)
    return found
