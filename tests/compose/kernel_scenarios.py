"""Runs every scenario on a module with hand-written kernels; prints a line each: name, `ok` or the error.

A process of its own: with TRITON_INTERPRET=1 triton chooses the interpreter when it is imported; with the
argument `cuda` the modules are on that device.
"""

import copy
import functools
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import torch
from composing import compose
from torch import nn
from torch.nn import functional as F

import mkevolve
from mkevolve.compose import ComposedModule, OriginalRan, SlotCalls

LINEAR_RELU = '''
"""relu(x @ w.T + b): one program for each row."""
import torch, triton, triton.language as tl

@triton.jit
def _kernel(x, w, b, out, K: tl.constexpr, N: tl.constexpr, N2: tl.constexpr):
    row = tl.program_id(0)
    n = tl.arange(0, N2)
    acc = tl.load(b + n, mask=n < N, other=0.0).to(tl.float32)
    for k in range(K):
        weights = tl.load(w + k * N + n, mask=n < N, other=0.0).to(tl.float32)
        acc += tl.load(x + row * K + k).to(tl.float32) * weights
    tl.store(out + row * N + n, tl.maximum(acc, 0.0).to(out.dtype.element_ty), mask=n < N)

def prepare(weight, bias):
    return weight.t().contiguous(), bias

def run(x, w, b):
    out = torch.empty((x.shape[0], w.shape[1]), dtype=x.dtype, device=x.device)
    _kernel[(x.shape[0],)](x, w, b, out, K=x.shape[1], N=w.shape[1], N2=triton.next_power_of_2(w.shape[1]))
    return out
'''

SCALE = '''
"""sigmoid(x) * scale, elementwise; scale is a buffer and is read raw."""
import torch, triton, triton.language as tl

@triton.jit
def _kernel(x, scale, out, SIZE: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.sigmoid(tl.load(x + i, mask=i < SIZE, other=0.0).to(tl.float32))
    value *= tl.load(scale + i % N, mask=i < SIZE, other=0.0).to(tl.float32)
    tl.store(out + i, value.to(out.dtype.element_ty), mask=i < SIZE)

def run(x, scale):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _kernel[(triton.cdiv(x.numel(), 16),)](x, scale, out, SIZE=x.numel(), N=x.shape[-1], BLOCK=16)
    return out
'''

WARNED: list[str] = []
DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"


class Small(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 6)
        self.second = nn.Linear(6, 6)
        self.register_buffer("scale", torch.rand(6) + 0.5)
        self.power = 1
        self.to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(F.relu(self.second(F.relu(self.first(x)))), -1)
        if self.training or self.power > 1:
            y = y + self.power
        return torch.sigmoid(y.t().t()) * self.scale  # the views end the slot of the softmax


@functools.cache
def composition(dtype: torch.dtype) -> Path:
    module = Small(dtype).eval()
    calls = [(sample(batch, dtype),) for batch in (4, 3)]
    kernels = {"linear+relu": LINEAR_RELU, "sigmoid+mul": SCALE}
    return compose(Path(tempfile.mkdtemp()), module, *calls, kernels=kernels)


def sample(batch: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    return torch.randn(batch, 8, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Scene:
    """A composed module, its original, and an untouched twin."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.original = Small(dtype).eval().to(DEVICE)
        self.twin = copy.deepcopy(self.original)
        self.dtype = dtype
        self.composed = mkevolve.load(composition(dtype), self.original, unmeasured=DEVICE != "cpu")

    def input(self, batch: int, seed: int = 1) -> torch.Tensor:
        return sample(batch, self.dtype, seed).to(DEVICE)

    def compare(self, batch: int = 4, tolerance: float | None = None) -> None:
        x = self.input(batch)
        mine, right = self.composed(x), self.twin(x)
        assert (mine.dtype, mine.shape, mine.stride()) == (right.dtype, right.shape, right.stride())
        if tolerance is None:
            tolerance = 1e-2 if right.dtype == torch.bfloat16 else 1e-5
        torch.testing.assert_close(mine, right, rtol=tolerance, atol=tolerance)

    def counts(self) -> tuple[int, int]:
        report = self.composed.report()
        return report.composed, sum(report.original.values())


def verified_conditions() -> None:
    scene = Scene()
    with torch.no_grad():
        scene.compare(4)
        scene.compare(3)
    report = scene.composed.report()
    assert report.composed == 2, report
    assert report.original == {}
    calls = report.slots
    ours = SlotCalls(subkernel=2)
    softmax = SlotCalls(fallback=2)
    assert calls == {"first_relu": ours, "second_relu": ours, "softmax": softmax, "sigmoid_scale": ours}


def inference_mode() -> None:
    scene = Scene()
    with torch.inference_mode():
        scene.compare()
        scene.compare()
    assert scene.counts() == (2, 0)


def bfloat16() -> None:
    scene = Scene(torch.bfloat16)
    with torch.no_grad():
        scene.compare()
    assert scene.counts() == (1, 0)


def another_batch() -> None:
    scene = Scene()
    with torch.no_grad():
        scene.compare(5)
        scene.compare(5)
    assert scene.composed.report().original == {"other sizes of the inputs": 2}
    assert len(WARNED) == 1, WARNED
    assert "5x8 float32" in WARNED[0]


def training_mode_and_back() -> None:
    scene = Scene()
    with torch.no_grad():
        scene.composed.train()
        scene.twin.train()
        scene.compare()
        assert scene.counts() == (0, 1)
        scene.composed.eval()
        scene.twin.eval()
        scene.compare()
    assert scene.counts() == (1, 1)
    assert scene.composed.report().original == {"training mode": 1}


def one_submodule_in_training() -> None:
    scene = Scene()
    scene.composed.second.train()
    with torch.no_grad():
        scene.compare()
    assert scene.counts() == (0, 1)


def moved_to_bfloat16_and_back() -> None:
    scene = Scene()
    with torch.no_grad():
        scene.compare()
        for dtype, counts in ((torch.bfloat16, (1, 1)), (torch.float32, (2, 1))):
            scene.dtype = dtype
            scene.composed.to(dtype)
            scene.twin.to(dtype)
            scene.compare()
            assert scene.counts() == counts, scene.counts()


def other_values_loaded() -> None:
    scene = Scene()
    with torch.no_grad():
        scene.compare()
        for p in scene.twin.parameters():
            p.mul_(-1.5)
        scene.twin.scale.add_(1.0)
        scene.composed.load_state_dict(scene.twin.state_dict())
        scene.compare()
        for p in scene.twin.parameters():
            p.add_(0.25)
        scene.composed.load_state_dict(copy.deepcopy(scene.twin.state_dict()), assign=True)
        scene.compare()
    assert scene.counts() == (3, 0)


def weights_written_in_place() -> None:
    scene = Scene()
    with torch.no_grad():
        scene.compare()
        for module in (scene.original, scene.twin):
            module.first.weight.mul_(2.0)
            module.second.bias[0] += 3.0
        scene.compare()
    assert scene.counts() == (2, 0)


def weights_replaced() -> None:
    scene = Scene()
    with torch.no_grad():
        scene.compare()
        for module in (scene.composed, scene.twin):
            torch.manual_seed(5)
            module.first.weight = nn.Parameter(torch.randn(6, 8).to(DEVICE))
            module.second.weight.data = torch.randn(6, 6).to(DEVICE)
        scene.compare()
    assert scene.counts() == (2, 0)


def a_hidden_write_needs_refresh() -> None:
    scene = Scene()
    with torch.no_grad():
        scene.compare()
        for module in (scene.composed, scene.twin):
            module.first.weight.data.mul_(3.0)
        scene.composed.refresh()
        scene.compare()
    assert scene.counts() == (2, 0)


def weights_are_prepared_once() -> None:
    scene = Scene()
    with torch.no_grad():
        scene.compare()
        fillers = scene.composed._fillers.values()
        prepared = [getattr(f, "_prepared", ()) for f in fillers]
        assert any(prepared)
        scene.compare()
        assert all(a is getattr(f, "_prepared", ()) for a, f in zip(prepared, fillers, strict=True))


def autocast() -> None:
    scene = Scene()
    with torch.no_grad(), torch.autocast(DEVICE, dtype=torch.bfloat16):
        scene.compare(tolerance=0.0)
    assert scene.composed.report().original == {"autocast": 1}


def gradients() -> None:
    scene = Scene()
    scene.compare()
    assert scene.composed.report().original == {"gradients": 1}
    scene.composed(scene.input(4)).sum().backward()
    scene.twin(scene.input(4)).sum().backward()
    assert torch.equal(scene.original.first.weight.grad, scene.twin.first.weight.grad)
    for module in (scene.composed, scene.twin):
        module.requires_grad_(False)
    scene.compare()
    x = scene.input(4).requires_grad_()
    scene.composed(x)
    assert scene.composed.report().original == {"gradients": 3}
    assert scene.composed.report().composed == 1


def other_strides() -> None:
    scene = Scene()
    x = scene.input(4).t().contiguous().t()
    with torch.no_grad():
        torch.testing.assert_close(scene.composed(x), scene.twin(x))
    assert scene.counts() == (0, 1)


def a_tensor_subclass() -> None:
    class Marked(torch.Tensor):
        pass

    scene = Scene()
    with torch.no_grad():
        out = scene.composed(scene.input(4).as_subclass(Marked))
    assert type(out) is Marked
    assert scene.counts() == (0, 1)


def a_changed_attribute() -> None:
    scene = Scene()
    with torch.no_grad():
        scene.composed.power = scene.twin.power = 3
        assert scene.original.power == 3
        scene.compare()
    assert scene.composed.report().original == {"an attribute was changed": 1}


def a_hook_on_a_submodule() -> None:
    scene = Scene()
    seen = []
    scene.original.first.register_forward_hook(lambda m, i, o: seen.append(1))
    with torch.no_grad():
        scene.compare()
    assert (seen, scene.counts()) == ([1], (0, 1))


def a_vmap() -> None:
    scene = Scene()
    x = torch.stack([scene.input(4), scene.input(4, 2)])
    with torch.no_grad():
        mine = torch.vmap(scene.composed)(x)
        torch.testing.assert_close(mine, torch.vmap(scene.twin)(x))
    assert scene.counts() == (0, 1)


def deep_copies_are_apart() -> None:
    scene = Scene()
    twin = copy.deepcopy(scene.composed)
    assert isinstance(twin, ComposedModule)
    with torch.no_grad():
        twin.first.weight.zero_()
        scene.compare()
        assert not torch.equal(twin(scene.input(4)), scene.twin(scene.input(4)))
    assert (scene.counts(), twin.report().composed) == ((1, 0), 1)


def the_same_state() -> None:
    scene = Scene()
    assert list(scene.composed.state_dict()) == list(scene.twin.state_dict())
    named = dict(scene.composed.named_parameters())
    assert all(named[k] is p for k, p in scene.original.named_parameters())
    assert scene.composed.first is scene.original.first
    assert len(list(scene.composed.modules())) == len(list(scene.original.modules()))


def moved_to_another_device() -> None:
    scene = Scene()
    if DEVICE == "cpu":
        return  # there is no other
    with torch.no_grad():
        scene.compare()
        for module in (scene.composed, scene.twin):
            module.cpu()
        torch.testing.assert_close(scene.composed(sample(4, scene.dtype)), scene.twin(sample(4, scene.dtype)))
        assert scene.composed.report().original == {"the tensors are on the CPU": 1}
        for module in (scene.composed, scene.twin):
            module.to(DEVICE)
        scene.compare()
    assert scene.counts() == (2, 1)


def an_unmeasured_device_runs_the_original() -> None:
    scene = Scene()
    if DEVICE == "cpu":
        return
    composed = mkevolve.load(composition(scene.dtype), scene.original)
    with torch.no_grad():
        torch.testing.assert_close(composed(scene.input(4)), scene.twin(scene.input(4)))
    assert composed.report().composed == 0
    assert "unmeasured=True" in WARNED[-1]


def no_bytecode_beside_the_kernels() -> None:
    scene = Scene()
    with torch.no_grad():
        scene.compare()
    assert not list(composition(scene.dtype).parent.rglob("__pycache__"))


SCENARIOS = [
    verified_conditions,
    inference_mode,
    bfloat16,
    another_batch,
    training_mode_and_back,
    one_submodule_in_training,
    moved_to_bfloat16_and_back,
    other_values_loaded,
    weights_written_in_place,
    weights_replaced,
    a_hidden_write_needs_refresh,
    weights_are_prepared_once,
    autocast,
    gradients,
    other_strides,
    a_tensor_subclass,
    a_changed_attribute,
    a_hook_on_a_submodule,
    a_vmap,
    deep_copies_are_apart,
    the_same_state,
    moved_to_another_device,
    an_unmeasured_device_runs_the_original,
    no_bytecode_beside_the_kernels,
]


def main() -> None:
    torch.set_num_threads(1)
    for scenario in SCENARIOS:
        WARNED.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                scenario_with_warnings(scenario, caught)
                outcome = "ok"
            except Exception:  # noqa: BLE001 (each scenario has its own line)
                outcome = traceback.format_exc(limit=-3).replace("\n", " | ")
        sys.stdout.write(f"{scenario.__name__}\t{outcome}\n")
        sys.stdout.flush()


def scenario_with_warnings(scenario, caught) -> None:
    def show(message, category, filename, lineno, file=None, line=None):
        if issubclass(category, OriginalRan):
            assert "/mkevolve/compose/" not in filename, filename
            WARNED.append(str(message))

    warnings.showwarning = show
    warnings._showwarnmsg_impl = lambda m: show(m.message, m.category, m.filename, m.lineno)
    scenario()


if __name__ == "__main__":
    main()
