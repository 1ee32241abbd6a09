"""Traces a copy of a module, on fake CPU tensors, with `torch.export` (non-strict).

The copy's parameters and buffers hold no data, so nothing large is copied, the user's module is never called
or changed, and the trace does not depend on the device that the module is on. Other tensors of the module are
copied: export takes them as constants, and computes with them.
"""

import linecache
import logging
import sysconfig
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.utils import _pytree as pytree

from mkevolve.capture.module_state import copy_module, fingerprint
from mkevolve.data.graph import TensorSpec
from mkevolve.errors import CaptureError
from mkevolve.models.inputs import Call, clone_leaf

_DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
_HIDDEN = (
    str(Path(torch.__file__).parent),
    str(Path(__file__).parent),
    sysconfig.get_paths()["stdlib"],
    "<",
)


@dataclass(frozen=True)
class Trace:
    """An exported program with the fake copy that it was made from: `copy`'s tensors say which are tied."""

    program: ExportedProgram
    copy: nn.Module


def trace(module: nn.Module, call: Call) -> Trace:
    """Export the functional graph for exactly the sizes of `call`; raises CaptureError with the cause."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with _quiet(), _explained(module):
        _refuse_attribute_writes(module, call, mode)
        copy = copy_module(module, lambda t: _fake(t, mode), clone_leaf)
        args, kwargs = _fake_call(call, mode)
        program = torch.export.export(copy, args, kwargs, strict=False)
        return Trace(program.run_decompositions({}), copy)


def fits(module: nn.Module, call: Call) -> bool:
    """Whether `forward` runs at the sizes of `call`, by fake tensors: no value is computed or looked at."""
    try:
        with _quiet(), _explained(module):
            _refuse_attribute_writes(module, call, FakeTensorMode(allow_non_fake_inputs=True))
    except CaptureError:
        return False
    return True


def trace_symbolic(module: nn.Module, call: Call) -> ExportedProgram:
    """Export with every size of every input free (`Dim.AUTO`); sizes that turn out fixed are ints."""
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    args, kwargs = call

    def free(value: object) -> object:
        return dict.fromkeys(range(value.dim()), Dim.AUTO) if isinstance(value, torch.Tensor) else None

    with _quiet(), _explained(module):
        copy = copy_module(module, lambda t: _fake(t, mode), clone_leaf)
        shapes = (*pytree.tree_map(free, args), *pytree.tree_map(free, tuple(kwargs.values())))
        return torch.export.export(copy, args, kwargs, dynamic_shapes=shapes, strict=False)


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Describe a tensor; raises CaptureError where a size is not a number."""
    sizes = (*tensor.shape, *tensor.stride())
    if not all(isinstance(s, int) for s in sizes):
        raise CaptureError(f"the shape {tuple(tensor.shape)} is data-dependent")
    return TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.stride())


def _fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    if tensor.layout != torch.strided:
        raise CaptureError(f"a tensor of the module has the layout {tensor.layout}; only strided is captured")
    with mode:
        fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(fake, requires_grad=tensor.requires_grad)
    return fake


def _fake_call(call: Call, mode: FakeTensorMode) -> Call:
    args, kwargs = pytree.tree_map(lambda v: _fake(v, mode) if isinstance(v, torch.Tensor) else v, call)
    return args, kwargs


def _refuse_attribute_writes(module: nn.Module, call: Call, mode: FakeTensorMode) -> None:
    probe = copy_module(module, lambda t: _fake(t, mode))
    before = fingerprint(probe)
    args, kwargs = _fake_call(call, mode)
    with mode:
        probe(*args, **kwargs)
    after = fingerprint(probe)
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    if changed:
        raise CaptureError(
            f"forward writes the attribute {changed[0]}, so one call depends on the one before; keep such"
            " state in a registered buffer (register_buffer) updated in place, or do not write it in forward"
        )


@contextmanager
def _explained(module: nn.Module) -> Iterator[None]:
    name = type(module).__name__
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        place = _place(error)
        if isinstance(error, _DATA_DEPENDENT) or "data-dependent" in str(error).lower():
            raise CaptureError(
                f"{name} is data-dependent{place}: what runs, or the size of a result, depends on the values"
                " of a tensor, so a trace is wrong for others; use torch.where or move it out of forward"
            ) from error
        first = (str(error).strip().splitlines() or [""])[0]
        raise CaptureError(f"{name} cannot be captured{place}: {type(error).__name__}: {first}") from error


def _place(error: Exception) -> str:
    """Say where, in code that is neither torch's nor ours, an error arose: ` at FILE:LINE (code)`."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_HIDDEN)]
    if not frames or frames[-1].lineno is None:
        return ""
    last = frames[-1]
    code = linecache.getline(last.filename, last.lineno or 0).strip()
    return f" at {last.filename}:{last.lineno} ({code})"


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back torch's log lines and warnings, gradients and the fused path of `nn.MultiheadAttention`.

    Export's own warnings are checked for by `_refuse_attribute_writes`, more strictly.
    """
    level, fast = logging.root.manager.disable, torch.backends.mha.get_fastpath_enabled()
    logging.disable(logging.CRITICAL)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        torch.backends.mha.set_fastpath_enabled(fast)
