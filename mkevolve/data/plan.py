"""The launch plan: what one candidate launches for one variant and configuration, and what the compiler
made of it.
"""

from dataclasses import dataclass

from mkevolve.data.graph import TensorSpec
from mkevolve.data.ids import content_id

Option = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor that the plan touches: `x0` (activation), `q0` (result of `prepare`), `t0` (allocated by
    `run`).

    `fill` is None for `empty*` and for inputs, else the value that the allocation starts with.
    """

    name: str
    spec: TensorSpec
    fill: float | None = None


@dataclass(frozen=True, slots=True)
class TensorArg:
    """A pointer argument: `offset` elements into the storage of a buffer."""

    buffer: str
    offset: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Dot:
    """One matrix product found in the IR; `precision` is ieee, tf32, tf32x3 or, for 16-bit operands,
    `native`.
    """

    operand: str
    accumulator: str
    precision: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast to a float of fewer bits found in the IR; dtypes as torch names them."""

    source: str
    result: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum over many values whose kind matters; `what` is loop, reduction or scan, where it is kept in less
    than 32 bits, or an atomic addition of floats, whose order is chance.
    """

    what: str
    dtype: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Wrap:
    """A tensor argument that is reached by offsets computed in 32 bits, at sizes where they do not fit."""

    argument: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """Per-program resources from the compiled binary: 32-bit registers a thread, spilled bytes a thread,
    shared bytes.
    """

    registers: int
    spills: int
    shared: int
    num_warps: int
    num_stages: int
    num_ctas: int = 1


@dataclass(frozen=True, slots=True)
class Binary:
    """What a kernel is loaded from without its source: IR for one chip, and the compiler's options.

    It holds no paths and no line numbers, so that equal kernels have equal ids.
    """

    ttgir: str
    options: tuple[tuple[str, Option], ...]

    @property
    def id(self) -> str:
        return content_id("b", [self.ttgir, *map(list, self.options)])


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch. `signature` maps each run-time argument to its Triton type with specialisation.

    `binary` is the id of the `Binary`, where the compile job kept it.
    """

    kernel: str
    grid: tuple[int, int, int]
    args: tuple[TensorArg | bool | int | float | None, ...]
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, str], ...]  # constexpr name -> repr
    resources: Resources
    dots: tuple[Dot, ...] = ()
    instructions: tuple[tuple[str, int], ...] = ()  # counts of interesting instruction kinds in the binary
    casts: tuple[Cast, ...] = ()
    sums: tuple[Sum, ...] = ()
    wraps: tuple[Wrap, ...] = ()
    binary: str = ""

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True, slots=True)
class Output:
    """A returned tensor: a view of a buffer."""

    buffer: str
    offset: int
    spec: TensorSpec


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Everything that happens on the device in one call of `run`, in order."""

    variant: str
    chip: str
    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    outputs: tuple[Output, ...]
