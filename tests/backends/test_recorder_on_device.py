"""The plan recorded without a device says what a device really launches."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from chip_specs import H200
from test_recorder import CALIBRATION, CASES, SPLIT_K, default, plan, source, spec

from mkevolve.data.graph import TensorSpec
from mkevolve.data.plan import Launch

pytestmark = [pytest.mark.gpu, pytest.mark.interp]


def seen_on_device(
    path: Path, settings: dict, activations: Sequence[TensorSpec], params: Sequence[TensorSpec]
):
    """(kernel, grid, integers, signature, registers, shared) of each launch of one real call."""
    import triton
    from triton.runtime.jit import JITFunction

    module_spec = importlib.util.spec_from_file_location("candidate", path)
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)

    def tensor(s: TensorSpec) -> torch.Tensor:
        return torch.empty_strided(s.shape, s.stride, dtype=getattr(torch, s.dtype), device="cuda").fill_(0.5)

    launched, real = [], JITFunction.run

    def run(self, *args, grid, warmup, **kwargs):
        kernel = real(self, *args, grid=grid, warmup=warmup, **kwargs)
        bound = self.signature.bind(
            *args, **{k: v for k, v in kwargs.items() if k in self.signature.parameters}
        )
        bound.apply_defaults()
        sizes = grid(bound.arguments) if callable(grid) else grid
        names = list(self.arg_names)
        signature = tuple(
            (n, kernel.src.signature[n] + (":16" if kernel.src.attrs.get((i,)) else ""))
            for i, n in enumerate(names)
            if kernel.src.signature[n] != "constexpr"
        )
        numbers = tuple(v for n, _ in signature if isinstance(v := bound.arguments[n], int | float))
        launched.append(
            (self.__name__, (*sizes, 1, 1)[:3], numbers, signature, kernel.n_regs, kernel.metadata.shared)
        )
        return kernel

    JITFunction.run = run
    try:
        prepared = [tensor(s) for s in params]
        if hasattr(module, "prepare"):
            prepared = module.prepare(*prepared)
            prepared = [prepared] if isinstance(prepared, torch.Tensor) else prepared
        module.run(*map(tensor, activations), *prepared, **settings)
        torch.cuda.synchronize()
    finally:
        JITFunction.run = real
    assert triton.runtime.driver.active.get_current_target().arch == 90
    return launched


def facts(launch: Launch):
    numbers = tuple(a for a in launch.args if isinstance(a, int | float))
    resources = launch.resources
    return launch.kernel, launch.grid, numbers, launch.signature, resources.registers, resources.shared


@pytest.mark.parametrize("kernel", CASES)
def test_a_plan_is_what_the_device_launches(backend, kernel):
    activations, params, *_ = CASES[kernel]
    configuration = default(source(kernel))
    recorded = plan(backend, source(kernel), activations, params, H200, configuration)
    path = CALIBRATION / "kernels" / f"{kernel}.py"
    real = seen_on_device(path, dict(configuration.settings), activations, params)
    assert [facts(launch) for launch in recorded.launches] == real


def test_fills_and_misaligned_views_too(backend, tmp_path):
    activations, params = [spec(20, 128, dtype="float32")], [spec(128, 32, dtype="float32")]
    path = tmp_path / "candidate.py"
    path.write_text(SPLIT_K)
    recorded = plan(backend, SPLIT_K, activations, params)
    assert [facts(launch) for launch in recorded.launches] == seen_on_device(path, {}, activations, params)
