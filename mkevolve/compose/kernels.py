"""What fills a slot at run time: a kernel on a device or in the interpreter, a reference, a compiled one."""

import importlib.util
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import torch

from mkevolve.compose.compiled import compile_graph
from mkevolve.composition_file import sha256
from mkevolve.data.candidate import Configuration
from mkevolve.data.graph import Graph
from mkevolve.errors import CompositionError
from mkevolve.partition.execution import Tensors, run_reference


class _NoCache(SourceFileLoader):
    """Leaves no bytecode beside the kernels: their folder is kept in git."""

    def set_data(self, path: str, data: object, *, _mode: int = 0o666) -> None:
        pass


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A kernel file as it was verified; `name` is what Python calls the module and holds the kernel's id."""

    path: Path
    name: str
    sha256: str


@cache
def import_kernel(file: CheckedFile) -> ModuleType:
    """Import a kernel once; raises `CompositionError` where it was changed since, or Python cannot."""
    if sha256(file.path) != file.sha256:
        raise CompositionError(f"{file.path} was changed after it was checked; run: mkevolve check")
    loader = _NoCache(file.name, str(file.path))
    spec = importlib.util.spec_from_file_location(file.name, file.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    try:
        loader.exec_module(module)
    except (ImportError, SyntaxError, NameError, AttributeError) as error:
        raise CompositionError(f"{file.path} cannot be imported here: {error}") from error
    return module


def interpreting() -> bool:
    """Was triton imported with `TRITON_INTERPRET=1`? False where it is not installed."""
    try:
        from triton.language import standard
        from triton.runtime.interpreter import InterpretedFunction
    except ImportError:
        return False
    return isinstance(standard.cdiv, InterpretedFunction)


class Launcher(ABC):
    """Calls `run` of an imported kernel."""

    @abstractmethod
    def __call__(
        self, module: ModuleType, configuration: Configuration, activations: Tensors, prepared: Tensors
    ) -> Tensors:
        """Return the results; the kernel was verified, so what it raises is not caught."""


class DeviceLauncher(Launcher):
    """Runs kernels on the device that their tensors are on."""

    def __call__(
        self, module: ModuleType, configuration: Configuration, activations: Tensors, prepared: Tensors
    ) -> Tensors:
        tensors = (*activations, *prepared)
        with torch.no_grad(), torch.cuda.device(tensors[0].device if tensors else None):
            return _tuple(module.run(*tensors, **dict(configuration.settings)))


class InterpreterLauncher(Launcher):
    """Runs kernels in the Triton interpreter of this process, which it corrects for bf16."""

    def __init__(self) -> None:
        from mkevolve.backends.interpreter import install

        threads = torch.get_num_threads()
        install(sealed=False)  # what others replace in the user's process is theirs
        torch.set_num_threads(threads)

    def __call__(
        self, module: ModuleType, configuration: Configuration, activations: Tensors, prepared: Tensors
    ) -> Tensors:
        from mkevolve.backends.interpreter import run_case
        from mkevolve.data.verdict import Status
        from mkevolve.interfaces import Case

        # `prepare` ran already: what it returned takes the place of the parameters
        bare = ModuleType(module.__name__)
        bare.__dict__.update(run=module.run, __file__=module.__file__)
        result = run_case(bare, configuration, Case(module.__name__, "", activations, prepared))
        if result.status is not Status.PASSED:
            raise RuntimeError(f"{module.__file__}: {result.status.value}: {result.message}")
        return result.outputs


class Filler(ABC):
    """Fills one slot."""

    subkernel: bool

    @abstractmethod
    def __call__(self, tensors: Tensors, roots: Tensors, graph: Graph, variant: str) -> Tensors:
        """Run the slot on its inputs in order; `roots` are the tensors whose memory the parameters share.

        `graph` is the canonical graph at this call's sizes, `variant` its name in the subgraph.
        """

    def refresh(self) -> None:  # noqa: B027 (most fillers keep nothing)
        """Forget what was derived from parameters."""


class ReferenceFiller(Filler):
    """`eager`: runs the canonical graph with torch."""

    subkernel = False

    def __call__(self, tensors: Tensors, roots: Tensors, graph: Graph, variant: str) -> Tensors:
        return run_reference(graph, tensors)


class CompiledFiller(Filler):
    """`compile`: runs the canonical graph under `torch.compile`, compiled once for each variant."""

    subkernel = False

    def __init__(self) -> None:
        self._compiled: dict[str, object] = {}

    def __call__(self, tensors: Tensors, roots: Tensors, graph: Graph, variant: str) -> Tensors:
        if variant not in self._compiled:
            self._compiled[variant] = compile_graph(graph, tensors)
        run = self._compiled[variant]
        assert callable(run)
        with torch.no_grad():
            return _tuple(run(*tensors))


class KernelFiller(Filler):
    """A subkernel, with its prepared parameters kept until a parameter changes.

    A change is seen by the identity, memory or version of the parameter. A write through `.data` leaves no
    trace: `refresh` is for that.
    """

    subkernel = True

    def __init__(
        self, file: CheckedFile, configurations: dict[str, Configuration], launcher: Launcher
    ) -> None:
        self._file = file
        self._configurations = configurations
        self._launcher = launcher
        self._module: ModuleType | None = None
        self._prepared: Tensors = ()
        self._key: tuple[object, ...] | None = None
        self._alive: tuple[object, ...] = ()

    def covers(self, variant: str) -> bool:
        """Was a configuration verified for this variant of the subgraph?"""
        return variant in self._configurations

    def refresh(self) -> None:
        self._prepared, self._key, self._alive = (), None, ()

    def __call__(self, tensors: Tensors, roots: Tensors, graph: Graph, variant: str) -> Tensors:
        if self._module is None:
            self._module = import_kernel(self._file)
        count = len(graph.activations)
        prepared = self._prepare(self._module, tensors[count:], roots)
        return self._launcher(self._module, self._configurations[variant], tensors[:count], prepared)

    def _prepare(self, module: ModuleType, params: Tensors, roots: Tensors) -> Tensors:
        if not hasattr(module, "prepare"):
            return params
        key = None if any(r.is_inference() for r in roots) else tuple(_mark(r) for r in roots)
        if key is None or key != self._key:
            with torch.inference_mode(False), torch.no_grad():
                self._prepared = _tuple(module.prepare(*(p.detach() for p in params)))
            # while these live, neither an id nor an address of memory can be taken by another tensor
            self._alive = (*roots, *(r.detach() for r in roots))
            self._key = key
        return self._prepared


def _mark(tensor: torch.Tensor) -> tuple[object, ...]:
    return (id(tensor), tensor.data_ptr(), tensor._version, tensor.dtype, tensor.shape, tensor.stride())


def _tuple(result: object) -> Tensors:
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)  # type: ignore[arg-type]
