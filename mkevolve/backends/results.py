"""What `run` and `prepare` may return: plain tensors that hold what they show, on memory of their own."""

from typing import Protocol

import torch

from mkevolve.backends.fault import CandidateFault
from mkevolve.backends.memory import detached_copy, extent
from mkevolve.data.verdict import Status


class _Region(Protocol):
    """The storage of one tensor; `source` is what an input was made from, None for allocations."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def source(self) -> object: ...


class _Memory(Protocol):
    """The memory of one call, on the CPU or on a device."""

    def find(self, tensor: torch.Tensor) -> _Region | None: ...


def plain_fault(value: object) -> str:
    """Say why a value is no plain tensor; empty where it is one.

    A subclass decides itself what every operation on it gives; a tensor that is conjugated, negated, sparse,
    quantised or on another device does not hold in memory what it shows.
    """
    if type(value) is not torch.Tensor:
        subclass = " (a subclass of torch.Tensor)" if isinstance(value, torch.Tensor) else ""
        return f"is a {type(value).__name__}{subclass}, not a torch.Tensor"
    functorch = torch._C._functorch.is_functorch_wrapped_tensor(value)
    if functorch or torch._is_functional_tensor(value):
        return "is wrapped by a torch transformation"
    if value.is_nested or value.layout != torch.strided:
        return f"has the layout {value.layout}"
    if value.is_quantized:
        return "is quantised"
    if value.device.type == "meta":
        return "is on the device meta: it has no values"
    if value.requires_grad:
        return "requires grad"
    if value.is_conj() or value.is_neg() or value._is_zerotensor():
        return "is lazily conjugated, negated or zero"
    return ""


def prepared(returned: object, plain: bool = True) -> tuple[torch.Tensor, ...]:
    """The tensors that `prepare` returned; raises `CandidateFault` where there is anything else.

    Without `plain` a subclass of `torch.Tensor` passes.
    """
    results = (returned,) if isinstance(returned, torch.Tensor) else returned
    if type(results) not in (tuple, list):
        raise CandidateFault(Status.STATIC_ERROR, "prepare must return a tensor or a tuple of tensors")
    assert isinstance(results, tuple | list)
    for number, result in enumerate(results):
        fault = plain_fault(result) if plain or not isinstance(result, torch.Tensor) else ""
        if fault:
            raise CandidateFault(Status.STATIC_ERROR, f"value {number} that prepare returns {fault}")
    return tuple(results)


def same_bytes(one: tuple[torch.Tensor, ...], two: tuple[torch.Tensor, ...]) -> int | None:
    """The number of the first tensor that differs in shape, strides, dtype or bytes; None where none does."""
    if len(one) != len(two):
        return min(len(one), len(two))
    for number, (a, b) in enumerate(zip(one, two, strict=True)):
        if (a.shape, a.stride(), a.dtype) != (b.shape, b.stride(), b.dtype):
            return number
        if not torch.equal(_bytes(a), _bytes(b)):
            return number
    return None


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return detached_copy(tensor).contiguous().reshape(-1).view(torch.uint8)


def outputs(returned: object, memory: _Memory, unshared: bool) -> list[torch.Tensor]:
    """The tensors that `run` returned; raises `CandidateFault` where they are not what a result may be.

    With `unshared` each must fill an allocation of its own.
    """
    items = list(returned) if type(returned) in (tuple, list) else [returned]  # type: ignore[call-overload]
    seen: set[str] = set()
    tensors = []
    for number, output in enumerate(items):
        fault = plain_fault(output) if unshared or not isinstance(output, torch.Tensor) else ""
        if fault:
            raise CandidateFault(Status.WRONG_OUTPUT, f"result {number} {fault}")
        assert isinstance(output, torch.Tensor)
        tensors.append(output)
        if output.numel() and unshared:
            fault = _storage_fault(output, memory, seen)
            if fault:
                raise CandidateFault(Status.WRONG_OUTPUT, f"result {number} {fault}")
    return tensors


def _storage_fault(output: torch.Tensor, memory: _Memory, seen: set[str]) -> str:
    region = memory.find(output)
    if region is None:
        return "lies in memory that run did not allocate by torch.empty and the like"
    if region.source is not None:
        return f"shares its storage with an input, {region.name}"
    if region.name in seen:
        return "shares its storage with another result"
    seen.add(region.name)
    size = extent(output) * output.element_size()
    if size < region.size:
        return f"keeps {region.size} bytes alive, of which it shows {size}"
    return ""
