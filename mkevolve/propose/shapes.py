"""Sizes of a subgraph as functions of its inputs: what a source may bake, and what `run` must read."""

from collections.abc import Iterator
from itertools import combinations_with_replacement, permutations

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, TensorSpec
from mkevolve.errors import ProposalError

Dim = tuple[int, ...]
"""One size (or stride) at every variant of the subgraph, target first. Equal tuples are the same size."""

INT32_MAX = 2**31 - 1
MANY = 5
"""Dimensions up to which every memory order is tried."""


class Sizes:
    """Shapes and strides of every value at every variant, and the text that computes a size.

    A size is *known* when some activation has it, when it is a product of such sizes (and a number), or
    when a family said how it arises (`define`).
    """

    def __init__(self, subgraph: Subgraph) -> None:
        self.graph: Graph = subgraph.target
        self._specs: dict[str, tuple[TensorSpec, ...]] = {}
        tables = [g.values() for _, g in subgraph.variants]
        for name in tables[0]:
            self._specs[name] = tuple(t[name].spec for t in tables)
        self._known: dict[Dim, tuple[str, str]] = {}
        # Parameters have one size in all variants, and `prepare` may hide them from `run`: those are numbers.
        for item in self.graph.activations:
            for axis, dim in enumerate(self.shape(item.name)):
                self._known.setdefault(dim, (f"{item.name}_d{axis}", f"{item.name}.shape[{axis}]"))

    def specs(self, value: str) -> tuple[TensorSpec, ...]:
        return self._specs[value]

    def dtype(self, value: str) -> str:
        return self._specs[value][0].dtype

    def shape(self, value: str) -> tuple[Dim, ...]:
        """Sizes of a value; raises `ProposalError` where the number of dimensions varies."""
        shapes = [s.shape for s in self._specs[value]]
        if len({len(s) for s in shapes}) > 1:
            raise ProposalError(f"{value} has another number of dimensions at another input size")
        return tuple(zip(*shapes, strict=True)) if shapes[0] else ()

    def strides(self, value: str) -> tuple[Dim, ...]:
        strides = [s.stride for s in self._specs[value]]
        return tuple(zip(*strides, strict=True)) if strides[0] else ()

    def numel(self, value: str) -> Dim:
        return tuple(s.numel for s in self._specs[value])

    def number(self, n: int) -> Dim:
        """The size that is `n` at every variant."""
        return (n,) * len(next(iter(self._specs.values())))

    def product(self, *dims: Dim) -> Dim:
        total = self.number(1)
        for dim in dims:
            total = tuple(a * b for a, b in zip(total, dim, strict=True))
        return total

    def define(self, dim: Dim, name: str, host: str) -> None:
        """Say that `host` (Python over the arguments of `run`) computes `dim`; `name` is its kernel name."""
        self._known.setdefault(dim, (name, host))

    def named(self, name: str) -> Dim | None:
        """The size that a kernel name stands for."""
        return next((dim for dim, (known, _) in self._known.items() if known == name), None)

    def factors(self, dim: Dim) -> tuple[tuple[str, str], ...]:
        """`(kernel name, host text)` of the factors of a size; a number has its own text twice."""
        if is_one(dim):
            return (("1", "1"),)
        if dim in self._known:
            return (self._known[dim],)
        if is_constant(dim):
            return ((str(dim[0]), str(dim[0])),)
        for dims, number in self._splits(dim):
            found = tuple(self._known[d] for d in dims)
            return found if number == 1 else (*found, (str(number), str(number)))
        raise ProposalError(f"size {dim} (one a variant) is no product of input sizes")

    def host(self, *dims: Dim) -> str:
        """Python text over the arguments of `run` that computes the product of `dims`."""
        parts = [host for dim in dims for _, host in self.factors(dim) if host != "1"]
        parts = [f"({p})" if len(parts) > 1 and (" + " in p or " // " in p) else p for p in parts]
        return " * ".join(parts) or "1"

    @property
    def wide(self) -> bool:
        """Whether some offset of some tensor passes 32 bits at some variant."""
        return any(extent(s) > INT32_MAX for specs in self._specs.values() for s in specs)

    def _splits(self, dim: Dim) -> Iterator[tuple[tuple[Dim, ...], int]]:
        known = [d for d in self._known if not is_one(d)]
        for count in (1, 2, 3):
            for dims in combinations_with_replacement(known, count):
                whole = self.product(*dims)
                if all(w and d % w == 0 for d, w in zip(dim, whole, strict=True)):
                    ratios = {d // w for d, w in zip(dim, whole, strict=True)}
                    if len(ratios) == 1:
                        yield dims, ratios.pop()


def is_one(dim: Dim) -> bool:
    """Whether the size is 1 at every variant."""
    return all(n == 1 for n in dim)


def is_constant(dim: Dim) -> bool:
    """Whether the size is the same at every variant, so that it may be a compile-time constant."""
    return len(set(dim)) == 1


def power_of_two(n: int) -> int:
    """The least power of two that is not below `n`."""
    return 1 << max(n - 1, 0).bit_length()


def extent(spec: TensorSpec) -> int:
    """Elements between the first and the last of a tensor, both counted; 0 for an empty one."""
    if spec.numel == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.stride, strict=True))


def dense_order(sizes: Sizes, value: str) -> tuple[int, ...]:
    """Dimensions from slowest to fastest in memory, the same at every variant, with no gap.

    Dimensions of size 1 go where their recorded stride puts them. Raises `ProposalError` for overlapping
    or gapped strides.
    """
    specs = sizes.specs(value)
    rank = len(specs[0].shape)
    orders = permutations(range(rank)) if rank <= MANY else [_by_stride(s) for s in specs]
    dense = [o for o in orders if all(_misplaced(s, o) is not None for s in specs)]
    if not dense:
        raise ProposalError(
            f"{value} has strides {specs[0].stride} for {specs[0].shape}: not one dense order"
        )
    return min(dense, key=lambda o: sum(_misplaced(s, o) or 0 for s in specs))


def _by_stride(spec: TensorSpec) -> tuple[int, ...]:
    return tuple(sorted(range(len(spec.shape)), key=lambda d: (-spec.stride[d], d)))


def _misplaced(spec: TensorSpec, order: tuple[int, ...]) -> int | None:
    """How many dimensions of size 1 get another stride by this order; None where another dimension does."""
    step, count = 1, 0
    for d in reversed(order):
        if spec.stride[d] != step:
            if spec.shape[d] != 1:
                return None
            count += 1
        step *= spec.shape[d]
    return count
