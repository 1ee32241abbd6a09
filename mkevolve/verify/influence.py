"""Which inputs matter, and cases that show the ones which the usual cases do not.

A bias near zero, a mask that is true everywhere, an epsilon: left out, they change nothing that would be
refused. Each input is drawn anew by itself; where the result stays within its bound, the input is made larger
or, where it is no float, less regular, until leaving it out shows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from mkevolve.data.graph import TensorSpec
from mkevolve.verify.observe import lay_out

FACTORS = (1.0, 1e2, 1e4, 1e6)  # tried until an input shows

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Emphasis:
    """Inputs where input number `at` shows: with `changed` instead the result is another."""

    at: int
    inputs: Tensors
    changed: Tensors
    usual: bool  # `inputs` are the usual ones


def emphases(
    at: int, spec: TensorSpec, given: Tensors, fresh: torch.Tensor, rng: torch.Generator
) -> Iterator[Emphasis]:
    """What to try for one input, mildest first. `fresh` is another draw of it."""
    old = given[at]
    new = fresh if not torch.equal(fresh, old) else rolled(old, rng)
    if spec.is_float:
        for factor in FACTORS:
            inputs, changed = (_with(given, at, _scaled(t, factor, spec)) for t in (old, new))
            yield Emphasis(at, inputs, changed, factor == 1.0)
        return
    if not torch.equal(new, old):
        yield Emphasis(at, given, _with(given, at, new), True)
    for change in _EXACT_CHANGES if spec.dtype != "bool" else (_toggled,):
        other = lay_out(change(old, rng), spec)
        if not torch.equal(other, old):
            yield Emphasis(at, _with(given, at, other), given, False)


def rolled(tensor: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """The same values in other places: indices stay valid, masks stay masks."""
    if tensor.numel() < 2:
        return tensor
    step = int(torch.randint(1, tensor.numel(), (1,), generator=rng))
    spec = TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tuple(tensor.stride()))
    return lay_out(tensor.reshape(-1).roll(step).reshape(tensor.shape), spec)


def _scaled(tensor: torch.Tensor, factor: float, spec: TensorSpec) -> torch.Tensor:
    return tensor if factor == 1.0 else lay_out(tensor * factor, spec)


def _toggled(tensor: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """A mask that is true (or false) everywhere, with exceptions."""
    return tensor ^ (torch.rand(tensor.shape, generator=rng) < 0.25)


def _raised(tensor: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    return tensor + (torch.rand(tensor.shape, generator=rng) < 0.5).to(tensor.dtype)


def _lowered(tensor: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    return tensor - (torch.rand(tensor.shape, generator=rng) < 0.5).to(tensor.dtype)


_EXACT_CHANGES: tuple[Callable[[torch.Tensor, torch.Generator], torch.Tensor], ...] = (_raised, _lowered)


def _with(tensors: Tensors, at: int, new: torch.Tensor) -> Tensors:
    return (*tensors[:at], new, *tensors[at + 1 :])
