"""Keeping what a kernel is loaded from again, and loading it: of private Triton names, those of its IR.

Like `seam.py`, seen to work on Triton 3.6 and 3.7.1. Neither side needs a device.
"""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton._C.libtriton import ir
from triton.compiler.compiler import make_backend

from mkevolve.backends.seam import target_of
from mkevolve.data.chip import Chip
from mkevolve.data.plan import Binary
from mkevolve.errors import BackendError

# What the compiler reads after this IR was made; warps and programs a cluster stand in the IR itself.
_OPTIONS = (
    "num_stages", "maxnreg", "enable_fp_fusion", "enable_reflect_ftz", "launch_pdl",
    "launch_cooperative_grid", "ptx_options", "ptx_version", "debug", "sanitize_overflow",
)  # fmt: skip
_ENTRY = re.compile(r"\.visible\s+\.entry\s+\w+\s*\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Kernel:
    """Machine code that a driver can load, and what its launches need.

    `shared` bytes a program; `parameters` counts those of the machine code, which has more than the source:
    the compiler adds pointers to scratch memory, null where it asks for none.
    """

    name: str
    cubin: bytes
    shared: int
    warps: int
    ctas: int
    parameters: int
    cooperative: bool
    dependent: bool


def kept(kernel: Any, chip: Chip) -> Binary:
    """What a compiled kernel of Triton can be loaded from again."""
    metadata = kernel.metadata._asdict()
    options = {name: metadata.get(name) for name in _OPTIONS}
    given = tuple((n, v) for n, v in options.items() if isinstance(v, bool | int | float | str))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ttgir")
        path.write_text(kernel.asm["ttgir"])
        context = ir.context()
        ir.load_dialects(context)
        make_backend(target_of(chip)).load_dialects(context)
        module = ir.parse_mlir_module(str(path), context)
        return Binary(module.str_nodebug(), given)  # without lines and paths


def load(binary: Binary, chip: Chip) -> Kernel:
    """Compile what was kept to machine code.

    Raises `BackendError` where this Triton cannot: another version may have written it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ttgir")
        path.write_text(binary.ttgir)
        try:
            made = triton.compile(str(path), target=target_of(chip), options=dict(binary.options))
        except Exception as error:  # whatever the compiler raises
            reason = " ".join(str(error).split())[:200]
            message = f"binary {binary.id} does not compile with Triton {triton.__version__}: {reason}"
            raise BackendError(message) from error
    metadata = made.metadata
    if getattr(metadata, "global_scratch_size", 0) or getattr(metadata, "profile_scratch_size", 0):
        raise BackendError(f"binary {binary.id} asks for scratch memory, which a replay has not")
    entry = _ENTRY.search(made.asm["ptx"])
    return Kernel(
        metadata.name,
        made.asm["cubin"],
        metadata.shared,
        metadata.num_warps,
        metadata.num_ctas,
        entry[1].count(".param") if entry else 0,
        bool(getattr(metadata, "launch_cooperative_grid", False)),
        bool(getattr(metadata, "launch_pdl", False)),
    )
