"""What a pointwise rule sees of the node that it writes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mkevolve.data.graph import Arg, Node, Ref
from mkevolve.propose.terms import Term, computed
from mkevolve.propose.views import Coords

if TYPE_CHECKING:
    from mkevolve.propose.emit import Emitter


@dataclass(frozen=True, slots=True)
class Call:
    """What a pointwise rule sees: one node, wanted at some coordinates."""

    emitter: "Emitter"
    node: Node
    coords: Coords

    @property
    def dtype(self) -> str:
        """The dtype in which the result is computed."""
        return computed(self.emitter.sizes.dtype(self.node.outputs[0].name))

    def arg(self, index: int, name: str = "", default: Arg = None) -> Arg:
        """Argument by position or keyword."""
        return self.node.args[index] if index < len(self.node.args) else self.node.kwarg(name, default)

    def number(self, index: int, name: str, default: float) -> float:
        """A Python number of the graph."""
        found = self.arg(index, name)
        return found if isinstance(found, int | float) else default

    def term(self, index: int) -> Term:
        """Operand as it is: a tensor, or a number baked in."""
        return self.emitter.operand(self.node, self.arg(index), self.coords)

    def text(self, index: int, dtype: str | None = None) -> str:
        """Operand cast to `dtype` (default: the dtype of the result)."""
        return self.term(index).cast(dtype or self.dtype)

    def promoted(self, *indices: int) -> str:
        """The dtype in which these operands meet: a float if one is."""
        found = [self.term(i).dtype for i in indices]
        tensors = [d for d in found if d not in ("int", "float")]
        for dtype in ("float64", "float32"):
            if dtype in tensors:
                return dtype
        if "float" in found:
            return "float32"
        ranked = ["bool", "uint8", "int8", "int16", "int32", "int64"]
        best = max(tensors, key=ranked.index, default="int64")
        return "int64" if best == "bool" and "int" in found else best

    def channel(self, index: int, axis: int = 1) -> str | None:
        """A vector over dimension `axis` of the result, in float32; None where the argument is absent."""
        arg = self.arg(index)
        if not isinstance(arg, Ref):
            return None
        return self.emitter.pull(arg.name, (self.coords[axis],)).cast("float32")

    def place(self, axis: int) -> str:
        """The result's coordinate along dimension `axis`, as a number of the kernel."""
        return self.emitter.position(self.coords[axis])

    def function(self, name: str) -> str:
        """Use a jit function of `rules.FUNCTIONS`."""
        self.emitter.kernel.functions.add(name)
        return name
