"""Example inputs: their sources, and copies and draws that keep strides and value ranges."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn
from torch.utils import _pytree as pytree

from mkevolve.data.graph import TensorSpec
from mkevolve.data.model import Leaf
from mkevolve.data.model_config import InputConfig, ModelConfig

Call: TypeAlias = tuple[tuple[object, ...], dict[str, object]]


class InputSource(ABC):
    """Makes the arguments of `forward` for named variants, from torch's random state on the CPU."""

    @abstractmethod
    def variants(self) -> tuple[str, ...]:
        """Return the names of the variants, `target` first."""

    @abstractmethod
    def make(self, variant: str) -> Call:
        """Return fresh `(args, kwargs)`."""


@dataclass(frozen=True)
class DeclaredInputs(InputSource):
    """Inputs that the configuration describes by kind and shape."""

    config: ModelConfig

    def variants(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.config.variants)

    def make(self, variant: str) -> Call:
        shapes = dict(self.config.variants)[variant]
        return tuple(_draw(i, s) for i, s in zip(self.config.inputs, shapes, strict=True)), {}


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block with torch's CPU generator seeded, and leave the generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def normalise_call(module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> Call:
    """Pass by position whatever `forward` takes by position: `f(x=x)` and `f(x)` are the same call."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except (
        TypeError,
        ValueError,
    ):  # a wrong call, or a forward without a signature: the call itself will say
        return tuple(args), dict(kwargs)
    return bound.args, bound.kwargs


def clone_leaf(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to the CPU with its strides (expanded dimensions and gaps included), free of autograd."""
    source = tensor.detach()
    stride, shape = source.stride(), source.shape
    if source.numel() == 0 or source.layout != torch.strided:
        return source.cpu().clone()
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    flat = torch.zeros(extent, dtype=source.dtype)
    for dim, (size, step) in enumerate(zip(shape, stride, strict=True)):
        if step == 0 and size > 1:
            source = source.narrow(dim, 0, 1)
    flat.as_strided(source.shape, stride).copy_(source)
    return flat.as_strided(shape, stride)


def resample(call: Call, leaves: tuple[Leaf, ...]) -> Call:
    """Return a call of the sizes in `leaves`: a resized tensor draws its elements from the one given, others
    are copies.
    """
    values, tree = pytree.tree_flatten(call)
    drawn = [
        _redrawn(v, leaf.spec) if isinstance(v, torch.Tensor) and leaf.spec is not None else v
        for v, leaf in zip(values, leaves, strict=True)
    ]
    args, kwargs = pytree.tree_unflatten(drawn, tree)
    return args, kwargs


def _redrawn(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    if tuple(tensor.shape) == spec.shape or tensor.numel() == 0:
        return clone_leaf(tensor)
    chosen = tensor.reshape(-1)[torch.randint(tensor.numel(), (spec.numel,))]
    return torch.empty_strided(spec.shape, spec.stride, dtype=tensor.dtype).copy_(chosen.view(spec.shape))


def _draw(config: InputConfig, shape: tuple[int, ...]) -> torch.Tensor:
    if config.kind == "tokens":
        return torch.randint(config.low, config.high, shape)
    if config.kind == "mask":
        mask = torch.rand(shape) < 0.7
        mask[..., :1] = True
        return mask
    return torch.randn(shape)
