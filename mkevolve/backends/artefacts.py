"""What the compiler's output says about a kernel: dots and their precision from the TTIR, registers and
spills from the binary, counts of the instructions that a cost model cares about.
"""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping

from mkevolve.backends.ttir import Places, places
from mkevolve.data.plan import Dot

DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16",
    "i32": "int32", "i16": "int16", "i8": "int8",
    "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
    "f8E4M3FNUZ": "float8_e4m3fnuz", "f8E5M2FNUZ": "float8_e5m2fnuz", "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
}  # fmt: skip
_DOT = re.compile(
    r"= tt\.(?:dot|dot_scaled) .*? : (?P<types>.*?) -> tensor<(?P<result>[^>]*)>(?: loc\((?P<loc>.*)\))?$",
    re.MULTILINE,
)
_PRECISION = re.compile(r"inputPrecision = (\w+)")
_TENSOR = re.compile(r"tensor<([^>]*)>")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+).* LOCAL:(\d+)")
_GLOBAL = re.compile(r"\b(ld|st)\.global((?:\.[A-Za-z_][\w:]*?)*?)(?:\.v(\d))?\.[busf](\d+)\b")
_ASYNC = re.compile(r"\bcp\.async\.c[ag]\.shared\.global[^;]*?\],\s*\[[^\]]*\],\s*(0x[0-9a-fA-F]+|\d+)")
_PTX = re.compile(
    r"\b(wgmma\.mma_async\S*|mma\.sync\S*|cp\.async\.bulk\S*|ldmatrix|stmatrix|atom|red|bar\.sync"
    r"|ld\.shared|st\.shared|ld\.local|st\.local|shfl\.sync|ex2\.approx|fma\.rn)\b"
)
_AMD = re.compile(
    r"^\s+(v_mfma_\w+|global_\w+|buffer_\w+|ds_\w+|s_barrier|v_exp_f32|v_fma_f32)\b", re.MULTILINE
)


def find_dots(ttir: str, path: str) -> tuple[Dot, ...]:
    """Every matrix product of a kernel, with its line in the candidate file `path`; one per unrolled copy."""
    table: Places = places(ttir, path)
    found = []
    for match in _DOT.finditer(ttir):
        operand = _element(_TENSOR.search(match["types"]))
        asked = _PRECISION.search(match[0])
        precision = asked[1] if asked else "ieee"
        line = table.line(match["loc"] or "")
        found.append(
            Dot(
                operand,
                _dtype(match["result"].rsplit("x", 1)[-1]),
                precision if operand == "float32" else "native",
                line,
            )
        )
    return tuple(found)


def cuda_usage(cubin: bytes, cuobjdump: str) -> tuple[int, int]:
    """Registers a thread and spilled bytes a thread (the stack frame) of the kernel in a cubin."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run(
            [cuobjdump, "-res-usage", file.name], capture_output=True, text=True, check=True, close_fds=False
        ).stdout
    used = [tuple(map(int, m)) for m in _USAGE.findall(text)]
    if not used:
        raise ValueError(f"cuobjdump -res-usage said nothing of a kernel: {text[:200]!r}")
    return max(u[0] for u in used), max(u[1] + u[2] for u in used)


def hip_usage(assembly: str) -> tuple[int, int]:
    """Vector registers a lane (accumulation registers included) and scratch bytes a lane of an AMD kernel."""

    def entry(name: str) -> int:
        match = re.search(rf"^\s*-?\s*\.{name}:\s*(\d+)", assembly, re.MULTILINE)
        if match is None:
            raise ValueError(f"the AMD assembly has no .{name}")
        return int(match[1])

    return entry("vgpr_count"), entry("private_segment_fixed_size")


def count_instructions(asm: Mapping[str, str | bytes]) -> tuple[tuple[str, int], ...]:
    """Counts by kind in the PTX or AMD assembly, as it stands: loops are not multiplied out.

    `ld.global.16` is a load of 16 bytes a thread; `cp.async.16` likewise. AMD kinds are instruction names.
    """
    counts: Counter[str] = Counter()
    ptx, amd = asm.get("ptx"), asm.get("amdgcn")
    if isinstance(ptx, str):
        for kind, _, lanes, bits in _GLOBAL.findall(ptx):
            counts[f"{kind}.global.{int(lanes or 1) * int(bits) // 8}"] += 1
        counts.update(f"cp.async.{int(size, 0)}" for size in _ASYNC.findall(ptx))
        counts.update(kind.rstrip(",;") for kind in _PTX.findall(ptx))
    elif isinstance(amd, str):
        counts.update(_AMD.findall(amd))
    return tuple(sorted(counts.items()))


def _element(tensor: "re.Match[str] | None") -> str:
    return _dtype(tensor[1].rsplit("x", 1)[-1]) if tensor else "unknown"


def _dtype(name: str) -> str:
    return DTYPES.get(name, name)
