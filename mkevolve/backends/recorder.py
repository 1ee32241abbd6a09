"""Records what a candidate launches: `run` is called once on meta tensors, and the plan holds every
allocation and every launch, compiled for the chip, in order.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mkevolve.backends import binary_seam, seam
from mkevolve.backends.fault import CandidateFault
from mkevolve.data.candidate import Configuration
from mkevolve.data.chip import Chip
from mkevolve.data.graph import TensorSpec
from mkevolve.data.plan import Binary, Buffer, Launch, LaunchPlan, Output, Resources, TensorArg
from mkevolve.data.verdict import Status

# Allocations by ATen name, with where the fill is: None for none, a number, or the name of the argument.
_ALLOCATIONS: dict[str, float | str | None] = {
    "empty": None, "empty_strided": None, "empty_permuted": None, "empty_like": None,
    "new_empty": None, "new_empty_strided": None,
    "zeros": 0.0, "zeros_like": 0.0, "new_zeros": 0.0,
    "ones": 1.0, "ones_like": 1.0, "new_ones": 1.0,
    "full": "fill_value", "full_like": "fill_value", "new_full": "fill_value",
}  # fmt: skip
_ALIGNED = 256  # what the device's allocator gives; only its being a multiple of 16 matters
_THREADS = 1024  # most threads a program may have, on either vendor's chips


@dataclass(frozen=True, slots=True)
class Prepared:
    """A result of `prepare` by its spec; `misaligned` is its address modulo 16 (it may be a slice)."""

    spec: TensorSpec
    misaligned: int = 0


def prepare(module: ModuleType, params: Sequence[TensorSpec]) -> tuple[Prepared, ...]:
    """Run the candidate's `prepare` on small positive values; the params themselves where it has none."""
    if not hasattr(module, "prepare"):
        return tuple(Prepared(spec) for spec in params)
    with torch.no_grad():
        results = module.prepare(*(_filled(spec) for spec in params))
    results = (results,) if isinstance(results, torch.Tensor) else results
    if not isinstance(results, tuple | list) or not all(isinstance(r, torch.Tensor) for r in results):
        raise CandidateFault(Status.STATIC_ERROR, "prepare must return a tensor or a tuple of tensors")
    return tuple(Prepared(spec_of(r), r.storage_offset() * r.element_size() % 16) for r in results)


def record(
    module: ModuleType,
    configuration: Configuration,
    variant: tuple[str, Sequence[TensorSpec]],
    prepared: Sequence[Prepared],
    chip: Chip,
    keep: dict[str, Binary] | None = None,
) -> LaunchPlan:
    """Return the launch plan of one variant (name, activation specs); `keep` takes the binaries it names.

    Raises `CandidateFault` where the candidate breaks the kernel contract, does not compile, or asks for more
    than the chip has; other exceptions come out of the candidate's own `run`.
    """
    name, activations = variant
    tape = _Tape()
    inputs = [tape.add_input(f"x{i}", Prepared(spec)) for i, spec in enumerate(activations)]
    inputs += [tape.add_input(f"q{i}", result) for i, result in enumerate(prepared)]
    launches: list[Launch] = []

    def launched(call: seam.Call) -> None:
        check_limits(call.kernel, call.grid, call.facts.resources, chip)
        if 0 not in call.grid:
            launches.append(_launch(call, tape, _kept(call, chip, keep)))

    path = str(module.__file__)
    with torch.no_grad(), tape, seam.intercepted(chip, tape.pointer, launched, path):
        returned = module.run(*inputs, **dict(configuration.settings))
    return LaunchPlan(name, chip.name, tuple(tape.buffers), tuple(launches), _outputs(returned, tape))


def copy_cure(name: str) -> str:
    """What to do instead of a copy that a view would not need; empty for other ops (`name` without aten)."""
    if name.partition(".")[0] in ("clone", "_reshape_copy", "contiguous"):
        return "; this copies a tensor: pass its strides to the kernel instead of .contiguous() or .reshape()"
    return ""


def check_limits(kernel: str, grid: tuple[int, int, int], resources: Resources, chip: Chip) -> None:
    """Raise `RESOURCE_ERROR` naming requirement and limit, where the chip would refuse the launch."""
    threads = resources.num_warps * chip.warp_size
    per_register = chip.registers_per_processor if chip.backend == "cuda" else math.inf
    needs: tuple[tuple[str, float, float], ...] = (
        ("shared memory", resources.shared, chip.shared_per_program),
        ("threads", threads, _THREADS),
        ("registers", resources.registers * threads, per_register),
        ("grid x", grid[0], 2**31 - 1),
        ("grid y", grid[1], 65535),
        ("grid z", grid[2], 65535),
    )
    for what, required, limit in needs:
        if required > limit:
            raise CandidateFault(
                Status.RESOURCE_ERROR, f"kernel {kernel}: {what} {required:.0f} > {limit:.0f} on {chip.name}"
            )


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Spec of a tensor; its dtype without the `torch.` prefix."""
    return TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tuple(tensor.stride()))


class _Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every torch op of `run`: notes allocations, lets views pass, refuses the rest."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.buffers: list[Buffer] = []
        self._names: dict[int, str] = {}
        self._bases: dict[int, int] = {}
        self._alive: list[torch.Tensor] = []  # a freed storage's address could be given to the next

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's own switch: else the first op would import all of torch.compile, seconds in every child."""
        return False

    def add_input(self, name: str, value: Prepared) -> torch.Tensor:
        spec = value.spec
        tensor = torch.empty_strided(spec.shape, spec.stride, dtype=getattr(torch, spec.dtype), device="meta")
        self._note(tensor, Buffer(name, spec), value.misaligned)
        return tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name in _ALLOCATIONS:
            tensor = func(*args, **kwargs)
            if tensor.device.type != "meta":
                raise CandidateFault(
                    Status.STATIC_ERROR, f"run allocates on {tensor.device}: write device=x.device"
                )
            fill = _ALLOCATIONS[name]
            if isinstance(fill, str):
                fill = float(_argument(func, fill, args, kwargs))
            allocated = sum(b.name.startswith("t") for b in self.buffers)
            self._note(tensor, Buffer(f"t{allocated}", spec_of(tensor), fill), 0)
            return tensor
        if not _is_view(func):
            raise CandidateFault(
                Status.STATIC_ERROR,
                f"run computes {func} in torch: it may only allocate, take views and launch Triton kernels"
                + copy_cure(name),
            )
        return func(*args, **kwargs)

    def pointer(self, tensor: torch.Tensor) -> seam.Pointer:
        """What the tensor would be on the device, where every allocation is aligned."""
        storage = tensor.untyped_storage()
        base = self._bases.get(storage._cdata, 0)
        address = _ALIGNED + base + int(tensor.storage_offset()) * tensor.element_size()
        return seam.Pointer(tensor.dtype, address, storage.nbytes())

    def place(self, tensor: torch.Tensor) -> tuple[str, int]:
        """The buffer that a tensor lies in and its offset there, in elements of the tensor's dtype."""
        name = self._names.get(tensor.untyped_storage()._cdata)
        if name is None:
            raise CandidateFault(
                Status.STATIC_ERROR,
                f"a {tuple(tensor.shape)} tensor on {tensor.device} is neither an input nor allocated by run",
            )
        return name, int(tensor.storage_offset())

    def _note(self, tensor: torch.Tensor, buffer: Buffer, misaligned: int) -> None:
        identity = tensor.untyped_storage()._cdata
        self.buffers.append(buffer)
        self._alive.append(tensor)
        self._names[identity] = buffer.name
        self._bases[identity] = misaligned


def _kept(call: seam.Call, chip: Chip, keep: dict[str, Binary] | None) -> str:
    """Id of the binary of a call, which is put among those to keep, by the compiled kernel's hash."""
    if keep is None:
        return ""
    kernel = call.facts.kernel
    if kernel.hash not in keep:
        keep[kernel.hash] = binary_seam.kept(kernel, chip)
    return keep[kernel.hash].id


def _launch(call: seam.Call, tape: _Tape, binary: str) -> Launch:
    args: list[TensorArg | bool | int | float | None] = []
    for name, value in call.arguments:
        if isinstance(value, torch.Tensor):
            buffer, offset = tape.place(value)
            args.append(TensorArg(buffer, offset, spec_of(value).dtype))
        elif value is None or isinstance(value, bool | int | float):
            args.append(value)
        else:
            raise CandidateFault(
                Status.STATIC_ERROR,
                f"kernel {call.kernel}: argument {name} is a {type(value).__name__}, not a tensor or number",
            )
    facts = call.facts
    return Launch(
        call.kernel,
        call.grid,
        tuple(args),
        facts.signature,
        facts.constants,
        facts.resources,
        facts.dots,
        facts.instructions,
        facts.casts,
        facts.sums,
        call.wraps,
        binary,
    )


def _outputs(returned: object, tape: _Tape) -> tuple[Output, ...]:
    tensors = (returned,) if isinstance(returned, torch.Tensor) else returned
    if not isinstance(tensors, tuple | list) or not all(isinstance(t, torch.Tensor) for t in tensors):
        raise CandidateFault(
            Status.WRONG_OUTPUT,
            f"run returned {type(returned).__name__}: want a tensor or a tuple of tensors",
        )
    return tuple(Output(*tape.place(t), spec_of(t)) for t in tensors)


def _is_view(func: Any) -> bool:
    schema = func._schema
    aliases = [r.alias_info for r in schema.returns]
    return bool(aliases) and all(a is not None and not a.is_write for a in aliases)


def _argument(func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if name in kwargs:
        return kwargs[name]
    return args[[a.name for a in func._schema.arguments].index(name)]


def _filled(spec: TensorSpec) -> torch.Tensor:
    """A CPU tensor of the spec: 0.5 everywhere (a variance must be positive), or zeros for integers."""
    tensor = torch.empty_strided(spec.shape, spec.stride, dtype=getattr(torch, spec.dtype))
    return tensor.fill_(0.5 if spec.is_float else 0)
