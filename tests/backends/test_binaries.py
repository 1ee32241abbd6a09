"""What a compile job keeps: kernels load from it again, without their source, as they were."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl
from chip_specs import H200
from test_recorder import CASES, default, source
from triton import knobs
from triton.runtime import driver

from mkevolve.backends import binary_seam, seam
from mkevolve.backends.artefacts import cuda_usage
from mkevolve.data.plan import Binary
from mkevolve.data.verdict import Status
from mkevolve.errors import BackendError
from mkevolve.interfaces import CompileJob, CompileResult

pytestmark = pytest.mark.interp


def compiled(backend, kernel: str, *variants, keep: bool = True) -> CompileResult:
    text = source(kernel)
    result = backend.compile(CompileJob(text, default(text), variants, H200, keep=keep))
    assert result.status is Status.PASSED, result.message
    return result


def target(kernel: str) -> tuple:
    activations, params, _, _ = CASES[kernel]
    return "target", tuple(activations), tuple(params)


@pytest.mark.parametrize("kernel", CASES)
def test_a_kernel_loads_as_it_was_compiled(backend, kernel):
    result = compiled(backend, kernel, target(kernel))
    binaries = {b.id: b for b in result.binaries}
    for launch in result.plans[0].launches:
        loaded = binary_seam.load(binaries[launch.binary], H200)
        found = launch.resources
        usage = cuda_usage(loaded.cubin, knobs.nvidia.cuobjdump.path)
        assert (loaded.name, *usage) == (launch.kernel, found.registers, found.spills)
        assert (loaded.shared, loaded.warps, loaded.ctas) == (found.shared, found.num_warps, found.num_ctas)
        assert loaded.parameters == len(launch.signature) + 2


def test_equal_kernels_are_kept_once_and_only_where_asked(backend):
    first, again = target("softmax_row"), ("again", *target("softmax_row")[1:])
    result = compiled(backend, "softmax_row", first, again)
    assert len(result.binaries) == 1
    assert {launch.binary for plan in result.plans for launch in plan.launches} == {result.binaries[0].id}
    assert "loc(" not in result.binaries[0].ttgir
    assert "candidate.py" not in result.binaries[0].ttgir
    plain = compiled(backend, "softmax_row", first, keep=False)
    assert plain.binaries == ()
    unnamed = [dataclasses.replace(launch, binary="") for launch in result.plans[0].launches]
    assert list(plain.plans[0].launches) == unnamed
    assert compiled(backend, "softmax_row", first).binaries == result.binaries  # another job, another folder


@triton.jit
def product(x, w, o, n, scale, flag, B: tl.constexpr, K: tl.constexpr):  # noqa: PLR0913
    i, j, k = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B), tl.arange(0, K)
    acc = tl.zeros((B, B), tl.float32)
    for at in range(0, n, K):
        a = tl.load(x + i[:, None] * n + at + k[None, :])
        acc = tl.dot(a, tl.load(w + j[None, :] * n + at + k[:, None]), acc)
    acc = tl.where(flag, acc * scale, -acc)
    tl.store(o + i[:, None] * B + j[None, :], acc)


@pytest.mark.parametrize("options", [{}, {"maxnreg": 96}, {"enable_fp_fusion": False}, {"num_stages": 4}])
def test_the_machine_code_is_the_same(options, monkeypatch):
    monkeypatch.setattr(driver, "_active", seam._StubDriver(seam.target_of(H200)))
    pointer = seam.Pointer(torch.float16, 256, 1 << 20)
    settings = {"B": 64, "K": 32, "num_warps": 4, **options}
    made = product.warmup(pointer, pointer, pointer, 128, 0.5, True, grid=(1,), **settings)
    loaded = binary_seam.load(binary_seam.kept(made, H200), H200)
    assert code(made.asm["cubin"]) == code(loaded.cubin) != []


def code(cubin: bytes) -> list[str]:
    from triton.tools.disasm import get_sass

    return [line for line in get_sass(cubin).splitlines() if "/*" in line or ";" in line]


def test_what_does_not_compile_says_so():
    broken = Binary("module { this is no IR }", ())
    with pytest.raises(BackendError, match=f"binary {broken.id} does not compile with Triton"):
        binary_seam.load(broken, H200)
