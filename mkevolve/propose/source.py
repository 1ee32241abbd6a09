"""Renders a candidate file under the kernel contract from kernels that were written."""

import textwrap
from collections.abc import Sequence

from mkevolve.data.candidate import Setting
from mkevolve.data.graph import Ref
from mkevolve.errors import ProposalError
from mkevolve.propose.functions import functions
from mkevolve.propose.kernel import Kernel, identifier
from mkevolve.propose.shapes import Sizes, dense_order

HEADER = "import torch\nimport triton\nimport triton.language as tl\n"
LAUNCH_OPTIONS = ("num_warps", "num_stages")


class Source:
    """One candidate file. `run` allocates every output of the graph in its boundary strides as `out_NAME`,
    then does what `host`, `scratch` and `launch` added, in that order, and returns the outputs.

    `tunables` maps a name to its values, default first; `num_warps` and `num_stages` reach every launch.
    """

    def __init__(self, sizes: Sizes, doc: str, tunables: dict[str, tuple[Setting, ...]]) -> None:
        self.sizes = sizes
        self.doc = doc
        self.tunables = tunables
        self._kernels: list[Kernel] = []
        self._lines: list[str] = []
        self._prepare: tuple[str, ...] = ()
        self._prepared: tuple[str, ...] | None = None

    def kernel(self, name: str = "_kernel") -> Kernel:
        """A new kernel of this file; launch it once its body and grid are written."""
        made = Kernel(self.sizes, name)
        self._kernels.append(made)
        return made

    def prepare(self, lines: Sequence[str], returns: Sequence[str]) -> None:
        """Write `prepare` over all parameters; `run` then takes `returns` (variables of `lines`) instead."""
        self._prepare, self._prepared = tuple(lines), tuple(returns)

    def host(self, *lines: str) -> None:
        """Add statements to `run`: views, sizes."""
        self._lines += lines

    def scratch(self, name: str, shape: str, dtype: str = "float32", fill: str = "empty") -> None:
        """Allocate a temporary tensor; `shape` is the text of a tuple, `fill` is `empty` or `zeros`."""
        self._lines.append(f"{name} = torch.{fill}({shape}, dtype=torch.{dtype}, device={self.device})")

    def launch(self, kernel: Kernel) -> None:
        """Add the launch of a finished kernel."""
        self._lines += kernel.launch(tuple(o for o in LAUNCH_OPTIONS if o in self.tunables)).split("\n")

    @property
    def device(self) -> str:
        """Text of the device of the inputs."""
        arguments = self.arguments
        if not arguments:
            raise ProposalError("a subgraph without inputs")
        return f"{arguments[0]}.device"

    @property
    def arguments(self) -> tuple[str, ...]:
        """Positional arguments of `run`."""
        graph = self.sizes.graph
        params = tuple(i.name for i in graph.params) if self._prepared is None else self._prepared
        return (*(i.name for i in graph.activations), *params)

    def render(self) -> str:
        """The text of the file."""
        parts = [f'"""{self.doc}"""\n{HEADER}']
        if self.tunables:
            rows = "".join(f'    "{name}": {_tuple(v)},\n' for name, v in self.tunables.items())
            parts.append(f"TUNABLES = {{\n{rows}}}\n")
        names = {f for kernel in self._kernels for f in kernel.functions}
        parts += [text + "\n" for text in functions(names)]
        parts += [kernel.definition() + "\n" for kernel in self._kernels]
        if self._prepared is not None:
            params = ", ".join(i.name for i in self.sizes.graph.params)
            body = [*self._prepare, f"return {', '.join(self._prepared)}"]
            parts.append(f"def prepare({params}):\n{_indent(body)}\n")
        keywords = f", *, {', '.join(self.tunables)}" if self.tunables else ""
        outputs = [o.name for o in self.sizes.graph.outputs if isinstance(o, Ref)]
        if len(set(outputs)) < len(outputs):
            raise ProposalError("the same tensor is returned twice")
        body = [self._allocation(name) for name in outputs] + self._lines
        body.append(f"return {', '.join(_out(name) for name in outputs)}")
        parts.append(f"def run({', '.join(self.arguments)}{keywords}):\n{_indent(body)}\n")
        return "\n\n".join(parts)

    def _allocation(self, value: str) -> str:
        order = dense_order(self.sizes, value)
        shape = self.sizes.shape(value)
        sizes = [self.sizes.host(shape[d]) for d in order]
        text = (
            f"torch.empty({_tuple_text(sizes)}, dtype=torch.{self.sizes.dtype(value)}, device={self.device})"
        )
        if order != tuple(range(len(order))):
            back = sorted(range(len(order)), key=lambda place: order[place])
            text += f".permute({', '.join(map(str, back))})"
        return f"{_out(value)} = {text}"


def _out(value: str) -> str:
    return f"out_{identifier(value)}"


def _indent(lines: Sequence[str]) -> str:
    return textwrap.indent("\n".join(lines), "    ")


def _tuple_text(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _tuple(values: tuple[Setting, ...]) -> str:
    return _tuple_text([repr(v) for v in values])
