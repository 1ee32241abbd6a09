"""What is captured: one functional graph per input variant of a module."""

from dataclasses import dataclass
from enum import StrEnum

from mkevolve.data.graph import Graph, TensorSpec


class Precision(StrEnum):
    """Policy for fp32 matrix products, the same for every contender: IEEE fp32, or TF32 tensor cores
    allowed.
    """

    IEEE = "ieee"
    TF32 = "tf32"


@dataclass(frozen=True, slots=True)
class Mutation:
    """Graph output number `output` is the new value of a buffer (`state_dict` name) or of an input (its
    name).
    """

    output: int
    kind: str  # "buffer" or "input"
    target: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf of the call `(args, kwargs)`: a tensor by its spec, or a plain value as `repr` text."""

    spec: TensorSpec | None
    literal: str | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """One set of input sizes. `target` is what is timed; `check_*` are small and odd."""

    name: str
    graph: Graph
    leaves: tuple[Leaf, ...]  # flattened (args, kwargs), in tree order
    in_tree: str = ""  # that of the captured model

    @property
    def is_target(self) -> bool:
        return self.name == "target"


@dataclass(frozen=True, slots=True)
class CapturedModel:
    """A module as graphs of the same structure: node and value names agree between variants.

    `variants[0]` is the target. The graph's outputs are first the mutated values (`mutations`), then the
    flattened result, whose nesting is `out_tree`; `in_tree` is that of `(args, kwargs)` (both as
    `torch.utils._pytree.treespec_dumps`). `notes` are lines for the user, such as a dropped variant.
    """

    name: str
    dtype: str
    training: bool
    variants: tuple[Variant, ...]
    in_tree: str
    out_tree: str
    mutations: tuple[Mutation, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def target(self) -> Variant:
        return self.variants[0]

    @property
    def checks(self) -> tuple[Variant, ...]:
        return self.variants[1:]
