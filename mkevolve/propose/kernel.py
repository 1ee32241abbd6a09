"""One kernel while it is being written: its parameters, its body, its launch."""

from collections.abc import Iterator
from contextlib import contextmanager

from mkevolve.propose.shapes import Dim, Sizes, is_constant, is_one
from mkevolve.propose.views import paren


class Kernel:
    """Text of one `@triton.jit` function and of its launch.

    Parameters are declared by use: `pointer`, `size`, `stride` and `constant` return the text to write in
    the body and note the argument that the launch must pass. `grid` is the text of a tuple over the
    arguments of `run` (with tunables in scope).
    """

    def __init__(self, sizes: Sizes, name: str = "_kernel") -> None:
        self.sizes = sizes
        self.name = name
        self.body: list[str] = []
        self.grid = "(1,)"
        self.functions: set[str] = set()
        self.imports_libdevice = False
        self._depth = 0
        made = {v.name for n in sizes.graph.nodes for v in n.outputs}
        self._outputs = {o.name for o in sizes.graph.output_values} & made
        self._pointers: dict[str, str] = {}
        self._scalars: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._taken: set[str] = set()

    def pointer(self, value: str, host: str | None = None) -> str:
        """Pointer parameter for an input, output or scratch tensor; its name in the kernel.

        An output is passed as `out_NAME`, which is also its name in the kernel. `host` overrides the
        argument of the launch.
        """
        name = self._argument(value)
        self._pointers.setdefault(name, host or name)
        return name

    def size(self, *dims: Dim) -> str:
        """Kernel text of a size (of the product of several); a name, a number, or a product in brackets."""
        parts: list[str] = []
        for dim in dims:
            for name, host in self.sizes.factors(dim):
                if name.isdigit():
                    parts += [] if name == "1" else [name]
                    continue
                table = self._constants if is_constant(self._dim(name, dim)) else self._scalars
                table.setdefault(name, host)
                parts.append(name)
        return paren(" * ".join(parts) or "1")

    def stride(self, value: str, axis: int) -> str:
        """Kernel text of the stride of an argument of `run`, or of an output; "1" where it always is 1."""
        if is_one(self.sizes.strides(value)[axis]):
            return "1"
        argument = self._argument(value)
        name = f"{argument}_s{axis}"
        self._scalars.setdefault(name, f"{self._pointers.get(argument, argument)}.stride({axis})")
        return name

    def scalar(self, name: str, host: str) -> str:
        """A run-time number computed by `host`."""
        self._scalars.setdefault(name, host)
        return name

    def constant(self, name: str, host: str | None = None) -> str:
        """A `tl.constexpr` parameter: a tunable of that name, or what `host` computes."""
        self._constants.setdefault(name, host or name)
        return name

    @property
    def constants(self) -> frozenset[str]:
        """Names of the `tl.constexpr` parameters so far."""
        return frozenset(self._constants)

    def line(self, text: str = "") -> None:
        """Add one line of code (or several, joined by newlines) at the present indentation."""
        for part in text.split("\n"):
            self.body.append("    " * (1 + self._depth) + part if part else "")

    def assign(self, hint: str, text: str) -> str:
        """Add `NAME = text` and return the name: `hint`, numbered where that is taken."""
        name, count = identifier(hint), 1
        while name in self._taken or name in self._pointers:
            count += 1
            name = f"{identifier(hint)}_{count}"
        self._taken.add(name)
        self.line(f"{name} = {text}")
        return name

    @contextmanager
    def indented(self, header: str) -> Iterator[None]:
        """Everything added meanwhile is the body of `header` (`for k in range(...):`)."""
        self.line(header)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def program_id(self, axis: int = 0) -> str:
        """Text of the program's number, 64 bits wide where an offset could pass 31."""
        return f"tl.program_id({axis})" + (".to(tl.int64)" if self.sizes.wide else "")

    def arange(self, block: str) -> str:
        """Text of `0 ... block - 1`, 64 bits wide where an offset could pass 31."""
        return f"tl.arange(0, {block})" + (".to(tl.int64)" if self.sizes.wide else "")

    def definition(self) -> str:
        """Source of the jit function."""
        plain = [*self._pointers, *self._scalars]
        params = plain + [f"{c}: tl.constexpr" for c in self._constants]
        head = f"def {self.name}({', '.join(params)}):"
        if len(head) > 100:
            rows = [", ".join(self._pointers), ", ".join(self._scalars)]
            rows.append(", ".join(f"{c}: tl.constexpr" for c in self._constants))
            head = f"def {self.name}(\n" + "".join(f"    {row},\n" for row in rows if row) + "):"
        return "\n".join(["@triton.jit", head, *self.body])

    def launch(self, options: tuple[str, ...] = ()) -> str:
        """Source of the launch; `options` are tunables passed through (`num_warps`, `num_stages`)."""
        args = [*self._pointers.values(), *self._scalars.values()]
        args += [f"{name}={host}" for name, host in self._constants.items()]
        args += [f"{o}={o}" for o in options]
        call = f"{self.name}[{self.grid}]({', '.join(args)})"
        if len(call) <= 100:
            return call
        rows = [", ".join(self._pointers.values()), ", ".join(self._scalars.values())]
        rows.append(", ".join(f"{name}={host}" for name, host in self._constants.items()))
        rows.append(", ".join(f"{o}={o}" for o in options))
        return f"{self.name}[{self.grid}](\n" + "".join(f"    {row},\n" for row in rows if row) + ")"

    def _argument(self, value: str) -> str:
        return f"out_{identifier(value)}" if value in self._outputs else identifier(value)

    def _dim(self, name: str, dim: Dim) -> Dim:
        return self.sizes.named(name) or dim


def identifier(value: str) -> str:
    """A Python name for a value name: `n3.0` becomes `n3_0`."""
    return value.replace(".", "_")
