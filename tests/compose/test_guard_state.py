"""Whatever of a module's state was baked into the trace: when it changes, the original runs."""

import copy
import time
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from composing import assert_same, compose
from torch import nn
from torch.nn import functional as F

import mkevolve
from mkevolve.compose import OriginalRan


@dataclass(slots=True)
class Slotted:
    shift: float


class Plain:
    def __init__(self) -> None:
        self.scale = 2.0
        self.inner = {"deep": [1.0, {"deeper": 3.0}]}


class Act(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)


class Net(nn.Module):
    bias = 0.25
    table = (1.0, [2.0])

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.line = nn.Linear(4, 4)
        self.sub = Act()
        self.act = F.relu
        self.cfg = Plain()
        self.ks = [1.0, 2.0]
        self.opt = {"a": (1.0, [0.5])}
        self.slotted = Slotted(0.125)
        self.array = np.array([1.0, 3.0])
        self.names = {"square"}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.sub(self.line(x))) * self.cfg.scale + self.ks[1] * self.opt["a"][1][0]
        y = y + self.slotted.shift + float(self.array[1]) + self.bias * self.table[1][0]
        y = y + self.cfg.inner["deep"][1]["deeper"]
        return y * y if "square" in self.names else y


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compose(tmp_path_factory.mktemp("net"), Net().eval(), (torch.rand(3, 4),))


def set_act(m: Net) -> None:
    m.act = F.gelu


def set_config(m: Net) -> None:
    m.cfg.scale = 5.0


def set_list(m: Net) -> None:
    m.ks[1] = 7.0


def set_dict(m: Net) -> None:
    m.opt["a"][1][0] = 0.75


def set_deep(m: Net) -> None:
    m.cfg.inner["deep"][1]["deeper"] = 4.0


def set_slots(m: Net) -> None:
    m.slotted.shift = 1.0


def set_array(m: Net) -> None:
    m.array[1] = 9.0


def set_set(m: Net) -> None:
    m.names.clear()


def shadow_class(m: Net) -> None:
    m.bias = 0.5


def set_type(m: Net) -> None:
    m.cfg.scale = 2


def replace_submodule(m: Net) -> None:
    m.sub = nn.Sigmoid()


def replace_forward(m: Net) -> None:
    m.sub.forward = types.MethodType(lambda self, x: x, m.sub)


def hook(m: Net) -> None:
    m.sub.register_forward_hook(lambda module, args, out: out + 1.0)


def set_training(m: Net) -> None:
    m.sub.train()


def set_parameter(m: Net) -> None:
    m.line.bias = None


CHANGES: tuple[Callable[[Net], None], ...] = (
    set_act, set_config, set_list, set_dict, set_deep, set_slots, set_array, set_set, shadow_class, set_type,
    replace_submodule, replace_forward, hook, set_training, set_parameter,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_a_change_after_loading_runs_the_original_said_once_and_counted(file: Path, change) -> None:
    module = Net().eval()
    composed = mkevolve.load(file, module)
    x = torch.rand(3, 4)
    with torch.no_grad():
        for _ in range(2):
            assert_same(composed(x), module(x))
        assert composed.report().composed == 2
        change(module)
        with pytest.warns(OriginalRan):
            assert_same(composed(x), module(x))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_same(composed(x), module(x))
    assert composed.report().composed == 2
    assert sum(composed.report().original.values()) == 2


def test_a_change_of_the_class_is_seen(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Net().eval()
    composed = mkevolve.load(file, module)
    x = torch.rand(3, 4)
    with torch.no_grad():
        composed(x)
        monkeypatch.setattr(Act, "forward", lambda self, x: torch.sigmoid(x))
        with pytest.warns(OriginalRan, match=r"forward was replaced \(Act\.forward\)"):
            assert_same(composed(x), module(x))
        monkeypatch.undo()
        Net.table[1][0] = 4.0
        try:
            with pytest.warns(OriginalRan, match=r"attribute was changed \(Net\.table\[1\]\[0\]\)"):
                assert_same(composed(x), module(x))
        finally:
            Net.table[1][0] = 2.0
        composed(x)  # as it was loaded: the composition runs again
    assert composed.report().composed == 2


def test_equal_values_copies_and_new_weights_still_run_composed(file: Path) -> None:
    composed = mkevolve.load(file, Net().eval())
    twin = copy.deepcopy(composed)
    module = twin._original
    module.cfg, module.ks = Plain(), [1.0, 2.0]
    module.line.weight = nn.Parameter(torch.rand(4, 4))
    module.load_state_dict(module.state_dict())
    module.zero_grad()
    x = torch.rand(3, 4)
    with torch.no_grad():
        assert_same(twin(x), module(x))
        module.ks[1] = 3.0
        composed(x)
        with pytest.warns(OriginalRan, match=r"Net\.ks\[1\]"):
            assert_same(twin(x), module(x))
    assert (composed.report().composed, twin.report().composed) == (1, 1)


def test_the_look_at_the_state_costs_microseconds(file: Path) -> None:
    composed = mkevolve.load(file, Net().eval())
    guard = composed._guard
    assert guard._module_state() is None
    best = float("inf")
    for _ in range(200):
        begun = time.perf_counter()
        guard._module_state()
        best = min(best, time.perf_counter() - begun)
    assert best < 100e-6


class TiedNet(nn.Module):
    """One weight under two names, as a language model has, and a buffer with a second name."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.e = nn.Embedding(20, 16)
        self.l = nn.Linear(16, 20, bias=False)
        self.l.weight = self.e.weight
        self.register_buffer("scale", torch.rand(20) + 0.5)
        self.shift = {"again": self.scale}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.l(self.e(x)) * self.scale + self.shift["again"]


def untie_last(m: TiedNet) -> None:
    m.l.weight = nn.Parameter(torch.randn(20, 16))


def untie_first(m: TiedNet) -> None:
    m.e.weight = nn.Parameter(torch.randn(20, 16))


def untie_equal(m: TiedNet) -> None:
    m.l.weight = nn.Parameter(m.e.weight.detach().clone())


def untie_attribute(m: TiedNet) -> None:
    m.shift["again"] = torch.rand(20)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compose(tmp_path_factory.mktemp("tied"), TiedNet().eval(), (torch.arange(3),))


@pytest.mark.parametrize(
    "change", [untie_last, untie_first, untie_equal, untie_attribute], ids=lambda c: c.__name__
)
@pytest.mark.parametrize("called", [False, True])
def test_an_untied_tensor_runs_the_original_said_once_and_counted(tied: Path, change, called: bool) -> None:
    module = TiedNet().eval()
    composed = mkevolve.load(tied, module)
    x = torch.arange(3)
    with torch.no_grad():
        if called:
            assert_same(composed(x), module(x))
        change(module)
        with pytest.warns(OriginalRan, match="other tensors are tied than when it was loaded"):
            assert_same(composed(x), module(x))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_same(composed(x), module(x))
    assert composed.report().composed == int(called)
    assert composed.report().original == {"other tensors are tied than when it was loaded": 2}


def test_a_weight_replaced_under_all_its_names_still_runs_composed(tied: Path) -> None:
    composed = mkevolve.load(tied, TiedNet().eval())
    for one in (composed, copy.deepcopy(composed)):
        module = one._original
        module.e.weight = module.l.weight = nn.Parameter(torch.randn(20, 16))
        with torch.no_grad():
            assert_same(one(torch.arange(3)), module(torch.arange(3)))
        assert (one.report().composed, one.report().original) == (1, {})
