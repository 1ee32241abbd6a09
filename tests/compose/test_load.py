import copy
import io
import pickle
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from composing import assert_same, compose, edited
from torch import nn
from torch.nn import functional as F

import mkevolve
from mkevolve.compose import ComposedModule, OriginalRan, loading
from mkevolve.compose.compiled import to_fx
from mkevolve.composition_file import read, rewrite, sha256, text_sha256
from mkevolve.data.composition import KernelEntry, SlotChoice
from mkevolve.data.measurement import Clock, Measurement
from mkevolve.errors import CompositionError
from mkevolve.partition.execution import run_reference

KERNEL = "def run(x, w, b):\n    raise AssertionError('no device')\n"


class Net(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, width)
        self.second = nn.Linear(width, width)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.add_(1)
        return F.relu(self.second(F.gelu(self.first(x)))), self.calls


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """Compositions of fall-backs, and with a kernel in one slot, of the same module."""
    module, call = Net().eval(), (torch.randn(4, 8),)
    folder = tmp_path_factory.mktemp("compositions")
    found = {"eager": compose(folder / "eager", module, call)}
    found["kernel"] = compose(folder / "kernel", module, call, kernels={"linear+gelu": KERNEL})
    return found


@pytest.fixture
def file(files, tmp_path):
    """A private copy of a composition's folder."""
    import shutil

    def copied(name: str) -> Path:
        shutil.copytree(files[name].parent, tmp_path / name)
        return tmp_path / name / "composition.yaml"

    return copied


def run(module: nn.Module, batch: int = 4) -> object:
    with torch.no_grad():
        return module(torch.ones(batch, 8))


def copied_by_pickle(module: nn.Module) -> object:
    return pickle.loads(pickle.dumps(module))


def copied_by_save(module: nn.Module) -> object:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_fallbacks_need_no_device_and_buffers_are_written(files):
    original = Net().eval()
    twin = copy.deepcopy(original)
    composed = mkevolve.load(files["eager"], original)
    for _ in range(2):
        assert_same(run(composed), run(twin))
    assert composed.report().composed == 2
    assert run(composed)[1] is original.calls  # as in eager, the buffer itself
    assert original.calls == 3


def test_a_kernel_without_a_device_or_interpreter_leaves_the_original(files):
    composed = mkevolve.load(files["kernel"], Net().eval())
    with pytest.warns(OriginalRan, match="on the CPU"):
        assert_same(run(composed), run(Net().eval()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        run(composed)
    report = composed.report()
    assert (report.composed, report.original) == (0, {"the tensors are on the CPU": 2})
    assert dict(report)["composed"] == report["composed"] == 0
    with pytest.raises(KeyError):
        report["get"]


def test_an_unchecked_edit_is_refused_with_the_command(file):
    path = file("kernel")
    path.write_text(path.read_text().replace("implementation: eager", "implementation: mine.py"))
    with pytest.raises(CompositionError, match=r"slot \w+: mine\.py was not checked.*run: mkevolve check"):
        mkevolve.load(path, Net().eval())


def test_a_kernel_changed_after_its_check_is_refused(file):
    path = file("kernel")
    kernel = next(path.parent.glob("kernels/*.py"))
    kernel.write_text(kernel.read_text() + "\n")
    with pytest.raises(CompositionError, match="changed after it was checked"):
        mkevolve.load(path, Net().eval())


def test_a_kernel_that_is_not_the_one_of_its_id_is_refused_though_its_hash_fits(file):
    path = file("kernel")
    kernel = next(path.parent.glob("kernels/*.py"))
    old = sha256(kernel)
    kernel.write_text(kernel.read_text().replace("no device", "edited"))
    edited(path, **{old: sha256(kernel)})
    with pytest.raises(CompositionError, match=r"not hold k_\w+, .*run: mkevolve check composition="):
        mkevolve.load(path, Net().eval())
    kernel.write_bytes(b"\xff")
    edited(path, **{text_sha256(KERNEL.replace("no device", "edited")): sha256(kernel)})
    with pytest.raises(CompositionError, match="not hold k_"):
        mkevolve.load(path, Net().eval())


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.norm(self.line(x)), 0.5, self.training)


def test_a_changed_head_is_refused(tmp_path):
    path = compose(tmp_path, Dropping().eval(), (torch.randn(4, 8),))
    text = path.read_text()
    for old, new, why in (
        ("\ndtype: float32", "\ndtype: bfloat16", "for one in bfloat16 .*this one is in float32"),
        ("\ndtype: float32", "\ndtype: half", "for one in half"),
        ("\nmode: eval", "\nmode: train", r"does not fit this Dropping.*mode: train"),
    ):
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
        with pytest.raises(CompositionError, match=why):
            mkevolve.load(path, Dropping().eval())


@pytest.mark.parametrize("how", [copied_by_pickle, copied_by_save, copy.copy], ids=lambda f: f.__name__)
def test_it_can_be_pickled_and_copied(files, monkeypatch, how):
    monkeypatch.chdir(files["eager"].parent)
    composed = mkevolve.load("composition.yaml", Net().eval(), unmeasured=True)
    run(composed)
    monkeypatch.chdir("/")
    deep, twin = copy.deepcopy(composed), how(composed)  # apart from each other: the buffer counts calls
    assert isinstance(twin, ComposedModule)
    assert_same(run(twin), run(deep))
    assert (composed.report().composed, twin.report().composed) == (1, 1)
    assert twin._plan.again.keywords == {"unmeasured": True}


def test_another_module_is_refused_by_the_slot_that_differs(files):
    with pytest.raises(CompositionError, match=r"does not fit this Net: slot first_gelu"):
        mkevolve.load(files["eager"], Net(width=10).eval())
    with pytest.raises(CompositionError, match="does not fit this Linear"):
        mkevolve.load(files["eager"], nn.Linear(8, 6).eval())
    with pytest.raises(CompositionError, match="in float32"):
        mkevolve.load(files["eager"], Net().eval().double())


def test_a_module_in_training_mode_loads_and_runs_itself_until_eval(files):
    composed = mkevolve.load(files["eager"], Net())
    with pytest.warns(OriginalRan, match="training mode"):
        run(composed)
    composed.eval()
    run(composed)
    assert composed.report().composed == 1


def test_a_composed_module_is_not_composed_again(files):
    composed = mkevolve.load(files["eager"], Net().eval())
    with pytest.raises(CompositionError, match="composed already"):
        mkevolve.load(files["eager"], composed)


def test_a_slot_that_the_cut_lacks_is_refused(file):
    path = file("eager")
    found = read(path)
    extra = replace(found.slots[0].slot, name="ghost")
    rewrite(path, replace(found, slots=(*found.slots, SlotChoice(extra, "eager"))))
    with pytest.raises(CompositionError, match="ghost"):
        mkevolve.load(path, Net().eval())


def test_an_illegal_cut_is_refused(file):
    path = file("eager")
    found = read(path)
    rewrite(path, replace(found, decomposition=replace(found.decomposition, partitions=(("linear",),))))
    with pytest.raises(CompositionError, match=r"does not fit.*covering"):
        mkevolve.load(path, Net().eval())


def test_loading_changes_nothing_in_the_module(files):
    original = Net().eval()
    before = {k: (v.data_ptr(), v.clone()) for k, v in original.state_dict().items()}
    mkevolve.load(files["eager"], original)
    for name, value in original.state_dict().items():
        assert value.data_ptr() == before[name][0]
        assert torch.equal(value, before[name][1])


def test_the_module_may_move_after_loading(files):
    composed = mkevolve.load(files["eager"], Net().eval())
    composed.double()
    with torch.no_grad(), pytest.warns(OriginalRan, match="dtypes of the inputs"):
        assert composed(torch.ones(4, 8).double())[0].dtype == torch.float64
    with pytest.raises(RuntimeError, match="dtype"), pytest.warns(OriginalRan, match=r"first\.weight"):
        run(composed)  # as the original does


@pytest.mark.parametrize(
    ("clock", "name", "unmeasured", "refused"),
    [
        (Clock.MODEL, "NVIDIA H200", False, True),
        (Clock.MODEL, "NVIDIA H200", True, False),
        (Clock.DEVICE, "NVIDIA H200", False, False),
        (Clock.DEVICE, "NVIDIA GH200 480GB", False, True),
        (Clock.DEVICE, "NVIDIA A100-SXM4-80GB", False, True),
        (Clock.DEVICE, "NVIDIA A100-SXM4-80GB", True, False),
    ],
)
def test_a_device_needs_measurements_of_its_chip(files, monkeypatch, clock, name, unmeasured, refused):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    loading._is_chip.cache_clear()
    found = read(files["kernel"])
    time = Measurement(clock, 1.0, 1.0, 1.0)
    kernels: tuple[KernelEntry, ...] = tuple(replace(e, measurement=time) for e in found.kernels)
    found = replace(found, kernels=kernels, environment=replace(found.environment, clock=clock))
    why = loading._refusal(found, unmeasured)(torch.device("cuda", 0))
    loading._is_chip.cache_clear()
    assert (why is not None) == refused
    if refused:
        assert "unmeasured=True" in why


def test_compile_runs_the_compiled_graph(file, monkeypatch):
    path = file("eager")
    path.write_text(path.read_text().replace("implementation: eager", "implementation: compile"))
    made = []

    def fake_compile(module, dynamic):
        made.append(module)
        return module

    monkeypatch.setattr(torch, "compile", fake_compile)
    composed = mkevolve.load(path, Net().eval())
    assert_same(run(composed)[0], run(Net().eval())[0])
    run(composed)
    assert len(made) == len(composed.report().slots)  # once a slot and variant
    assert all(calls.fallback == 2 for calls in composed.report().slots.values())


def test_a_graph_as_fx_gives_what_the_reference_gives(files):
    from mkevolve.compose.recapture import fit

    path = files["eager"]
    fitted = fit(path, read(path), Net().eval())
    for subgraph in fitted.subgraphs.values():
        graph = subgraph.target
        tensors = tuple(torch.ones(i.spec.shape).to(getattr(torch, i.spec.dtype)) for i in graph.inputs)
        assert_same(to_fx(graph, torch.device("cpu"))(*tensors), run_reference(graph, tensors))


def test_it_can_be_compiled_as_a_whole(files):
    composed = mkevolve.load(files["eager"], Net().eval())
    twin = Net().eval()
    compiled = torch.compile(composed, backend="eager")
    assert_same(run(compiled)[0], run(twin)[0])


def test_it_can_be_traced_and_exported(files):
    composed = mkevolve.load(files["eager"], Net().eval())
    program = torch.export.export(composed, (torch.ones(4, 8),), strict=False)
    with torch.no_grad():
        assert_same(program.module()(torch.ones(4, 8))[0], run(Net().eval())[0])


class Writer(nn.Module):
    """Writes an input, returns it, and returns a view of the other one."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        before = x.sum()
        x.mul_(2.0)
        return {"x": x, "before": before, "y": y.t(), "sum": x + y}


def test_a_written_input_is_written_and_returned(tmp_path):
    call = (torch.ones(3, 3), torch.ones(3, 3))
    composed = mkevolve.load(compose(tmp_path, Writer(), call), Writer())
    (a, b), (c, d) = ((torch.rand(3, 3), torch.rand(3, 3)) for _ in range(2))
    c.copy_(a)
    d.copy_(b)
    for _ in range(2):
        mine, right = composed(a, b), Writer()(c, d)
        assert_same(mine, right)
        assert_same((a, b), (c, d))
        assert mine["x"] is a
        assert mine["y"].data_ptr() == b.data_ptr()
    assert composed.report().composed == 2


def test_a_written_input_that_shares_memory_runs_the_original(tmp_path):
    composed = mkevolve.load(compose(tmp_path, Writer(), (torch.ones(3, 3), torch.ones(3, 3))), Writer())
    a, b = torch.ones(3, 3), torch.ones(3, 3)
    with pytest.warns(OriginalRan, match="shares memory"):
        assert_same(composed(a, a), Writer()(b, b))


class Views(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x.t()[1:], 3


def test_a_module_that_computes_nothing(tmp_path):
    x = torch.rand(4, 5)
    composed = mkevolve.load(compose(tmp_path, Views(), (x,)), Views())
    assert_same(composed(x), Views()(x))
    assert (composed.report().composed, dict(composed.report().slots)) == (1, {})
