"""One of three modules that touch private Triton names: a stub driver for a target chip, the interception of
launches, and what the compiler's artefacts say.

It works without a GPU: with the stub driver active, `JITFunction.run` in warm-up mode compiles for the target
and never loads the binary. Seen to work on Triton 3.6 and 3.7.1.
"""

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler.errors import CompilationError
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from mkevolve.backends.artefacts import count_instructions, cuda_usage, find_dots, hip_usage
from mkevolve.backends.dataflow import find_address, find_casts, find_op, find_sums
from mkevolve.backends.fault import CandidateFault
from mkevolve.backends.ranges import LIMIT, find_wraps
from mkevolve.backends.ttir import Op, Places, places, read
from mkevolve.data.chip import Chip
from mkevolve.data.plan import Cast, Dot, Resources, Sum, Wrap
from mkevolve.data.verdict import Status

KernelValue = object


@dataclass(frozen=True, slots=True)
class Pointer:
    """Stands for a tensor where Triton specialises an argument: what a real allocation would have there.

    `address` and `size` are in bytes; `size` is that of the whole storage.
    """

    dtype: torch.dtype
    address: int
    size: int

    def data_ptr(self) -> int:
        return self.address

    def ptr_range(self) -> int:
        return self.size


@dataclass(frozen=True, slots=True)
class Call:
    """One intercepted launch. `arguments` are the run-time ones, in order, as the candidate passed them."""

    kernel: str
    grid: tuple[int, int, int]
    arguments: tuple[tuple[str, KernelValue], ...]
    facts: "Facts"
    wraps: tuple[Wrap, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not depend on the launch: the same for every launch of one binary."""

    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, str], ...]
    resources: Resources
    dots: tuple[Dot, ...]
    instructions: tuple[tuple[str, int], ...]
    casts: tuple[Cast, ...]
    sums: tuple[Sum, ...]
    ir: tuple[Op, ...]
    places: Places
    kernel: Any  # as Triton compiled it


class _StubDriver:
    """Answers what `JITFunction.run` asks of a driver on its way to the compiler, for a chip that is not
    here.
    """

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("meta")


def target_of(chip: Chip) -> GPUTarget:
    """Triton's name of a chip."""
    return GPUTarget(chip.backend, int(chip.arch) if chip.backend == "cuda" else chip.arch, chip.warp_size)


@contextmanager
def intercepted(
    chip: Chip,
    pointer: Callable[[torch.Tensor], Pointer],
    launched: Callable[[Call], None],
    path: str,
) -> Iterator[None]:
    """While active, every kernel launch is compiled for `chip` and handed to `launched` instead of run.

    `pointer` says what a tensor argument would be on the device. `path` is the candidate's file, for line
    numbers. A compiler error raises `CandidateFault`. Process-wide: for a child that does one job.
    """
    compile_only = JITFunction.run
    facts: dict[str, Facts] = {}

    def run(self: JITFunction, *args: object, grid: object, warmup: bool, **kwargs: object) -> object:
        bound = _bind(self, args, kwargs)
        stand = {k: pointer(v) if isinstance(v, torch.Tensor) else v for k, v in bound.items()}
        options = {k: v for k, v in kwargs.items() if k not in bound}
        try:
            kernel = compile_only(self, grid=(1,), warmup=True, **stand, **options)
        except Exception as error:  # whatever the compiler raises is the candidate's fault
            raise CandidateFault(Status.COMPILE_ERROR, explain(error, path)) from error
        if warmup:
            return kernel
        if kernel.hash not in facts:
            facts[kernel.hash] = _facts(self, kernel, chip, path)
        found = facts[kernel.hash]
        given = tuple((name, bound[name]) for name, _ in found.signature)
        launched(_call(self.__name__, grid_of(grid, bound), given, found, stand))
        return kernel

    tune, before = Autotuner.run, driver._active

    def refuse(self: Autotuner, *args: object, **kwargs: object) -> object:
        if len(self.configs) > 1:
            raise CandidateFault(
                Status.STATIC_ERROR, "triton.autotune with several configurations: use TUNABLES"
            )
        return tune(self, *args, **kwargs)

    driver.set_active(_StubDriver(target_of(chip)))
    JITFunction.run, Autotuner.run = run, refuse
    try:
        yield
    finally:
        JITFunction.run, Autotuner.run = compile_only, tune
        driver._active = before  # `reset_active` would look for a GPU


def warm() -> None:
    """Do once what every first compile in a process pays for: the compiler's hash, LLVM's set-up, imports.

    Runs no torch op and starts no thread, so the process may fork afterwards.
    """
    before = driver._active
    driver.set_active(_StubDriver(GPUTarget("cuda", 90, 32)))
    try:
        cuda_usage(_nothing.warmup(1, grid=(1,)).asm["cubin"], knobs.nvidia.cuobjdump.path)
    finally:
        driver._active = before


@triton.jit
def _nothing(n):  # type: ignore[no-untyped-def]
    pass


def grid_of(grid: object, bound: Mapping[str, object]) -> tuple[int, int, int]:
    """Evaluate a grid: a tuple, or a function of the kernel's arguments; missing dimensions are 1."""
    given = grid(dict(bound)) if callable(grid) else grid
    sizes = tuple(given) if isinstance(given, tuple | list) else (given,)
    try:
        whole = [operator.index(s) for s in sizes]
    except TypeError:
        whole = []
    if not 1 <= len(whole) <= 3 or min(whole) < 0:
        raise CandidateFault(Status.RUNTIME_ERROR, f"grid {given!r} is not one to three sizes")
    x, y, z = (*whole, 1, 1)[:3]
    return x, y, z


def explain(error: BaseException, path: str) -> str:
    """One line: the candidate's line number where it can be known, the compiler's reason, the source line."""
    chain = [error]
    while isinstance(chain[-1].__cause__, CompilationError):
        chain.append(chain[-1].__cause__)
    inner = chain[-1]
    if not isinstance(inner, CompilationError):
        return f"{type(error).__name__}: {_first_line(str(error))}"
    reason = _first_line(str(inner.error_message or inner.__cause__ or type(inner).__name__))
    # The innermost place in the candidate's file: what it calls may be a function of Triton's.
    for each in reversed(chain):
        node, source = getattr(each, "node", None), getattr(each, "src", None) or ""
        number = int(getattr(node, "lineno", 0))
        line = _line_in_file(path, source, number)
        if line:
            return f"line {line}: {reason} | {source.splitlines()[number - 1].strip()}"
    return f"{type(inner).__name__}: {reason}"


def _bind(fn: JITFunction, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
    names = {k: v for k, v in kwargs.items() if k in fn.signature.parameters}
    try:
        bound = cast(inspect.Signature, fn.signature).bind(*args, **names)
    except TypeError as error:
        raise CandidateFault(Status.RUNTIME_ERROR, f"kernel {fn.__name__}: {error}") from error
    bound.apply_defaults()
    return dict(bound.arguments)


def _call(
    name: str,
    grid: tuple[int, int, int],
    given: tuple[tuple[str, object], ...],
    facts: Facts,
    stand: Mapping[str, object],
) -> Call:
    large = frozenset(
        k for k, v in stand.items() if isinstance(v, Pointer) and v.size // v.dtype.itemsize > LIMIT
    )
    return Call(name, grid, given, facts, find_wraps(facts.ir, facts.places, given, grid, large))


def _facts(fn: JITFunction, kernel: Any, chip: Chip, path: str) -> Facts:
    source, names = kernel.src, list(fn.arg_names)
    ir, where = read(kernel.asm["ttir"]), places(kernel.asm["ttir"], path)
    if getattr(kernel.metadata, "global_scratch_size", 0):
        # The interpreter would run it, but on a device the launch asks for an allocator that nobody set.
        at = _at(find_op(ir, where, "tt.make_tensor_descriptor"), fn)
        message = f"{at}: tensor descriptors made on the device need an allocator; use pointers"
        raise CandidateFault(Status.STATIC_ERROR, message)
    signature = []
    for index, name in enumerate(names):
        kind = source.signature[name]
        if kind == "constexpr":
            continue
        if not isinstance(kind, str):
            raise CandidateFault(
                Status.RUNTIME_ERROR,
                f"kernel {fn.__name__}: argument {name} is a tuple, which is not recorded",
            )
        marks = "".join(
            f":{'r' if key.endswith('range') else ''}{value}" for key, value in source.attrs.get((index,), [])
        )
        signature.append((name, kind + marks))
    constants = tuple((names[i[0]], _text(v)) for i, v in source.constants.items() if len(i) == 1)
    addressed, line = find_address(ir, where)
    if addressed:
        message = f"{_at(line, fn)}: a pointer is made a number, or a number a pointer; addresses differ"
        raise CandidateFault(Status.STATIC_ERROR, message)
    return Facts(
        tuple(signature),
        constants,
        _resources(kernel, chip),
        find_dots(kernel.asm["ttir"], path),
        count_instructions(kernel.asm),
        find_casts(ir, where),
        find_sums(ir, where),
        tuple(ir),
        where,
        kernel,
    )


def _resources(kernel: Any, chip: Chip) -> Resources:
    if chip.backend == "cuda":
        registers, spills = cuda_usage(kernel.asm["cubin"], knobs.nvidia.cuobjdump.path)
    else:
        registers, spills = hip_usage(kernel.asm["amdgcn"])
    meta = kernel.metadata
    return Resources(registers, spills, meta.shared, meta.num_warps, meta.num_stages, meta.num_ctas)


def _at(line: int | None, fn: JITFunction) -> str:
    return f"line {line}" if line else f"kernel {fn.__name__}"


def _text(value: object) -> str:
    return value.__name__ if isinstance(value, JITFunction) else repr(value)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line.partition("; error")[2].lstrip(" :") for line in lines if "; error" in line]  # by ptxas
    return " | ".join([*lines[:1], *said[:1]])


def _line_in_file(path: str, source: str, line: int) -> int:
    """Triton numbers lines from the `def`; the candidate's file numbers them from its top. 0: not in it."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    at = text.find(source.rstrip()) if line and source.strip() else -1
    return line + text[:at].count("\n") if at >= 0 else 0
