"""The built-in models end to end, as the command line runs them; figures of time are in `tests/bench`."""

import json
from pathlib import Path

import pytest
from command import mkevolve, python

pytestmark = [pytest.mark.interp, pytest.mark.slow]

MODELS = (
    "resnet_block", "resnet_block_64", "resnet_bottleneck", "transformer_block", "swiglu_mlp",
    "vit_attention", "convnext_block", "mbconv", "mlp",
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("model", MODELS)
def test_model_ends_in_a_right_composition_of_subkernels(model: str, dtype: str, tmp_path: Path) -> None:
    words = (f"model={model}", f"model.dtype={dtype}", "budget.evaluations=1", "evolve=none", "json=true")
    result = mkevolve(tmp_path, *words, timeout=1500)
    assert result.code == 0, result.err
    found = result.json()
    assert found["totals"]["own_slots"] == found["totals"]["slots"], [s["reason"] for s in found["slots"]]
    assert all("equal the fp64 reference" in n for n in found["notes"] if n.startswith("whole model"))
    assert sum(n.startswith("whole model") for n in found["notes"]) >= 2
    if dtype == "bf16":
        _dots_are_bf16(Path(found["composition"]))


def _dots_are_bf16(composition: Path) -> None:
    """The compiled target plans of the kernels hold bf16 products, and no other."""
    code = f"""
import json, sys
from pathlib import Path
from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.composition_file import read
from mkevolve.config import parse, with_model
from mkevolve.interfaces import CompileJob
from mkevolve.measure.chips import load_chip
from mkevolve.partition.extract import slots_of
from mkevolve.report.progress import Progress
from mkevolve.session import open_session

path = Path({str(composition)!r})
file = read(path)
settings = with_model(parse(["check", f"composition={{path}}"]), file.made_by)
backend = InterpreterBackend()
with Progress(quiet=True) as progress, open_session(settings, progress) as session:
    _, subgraphs = slots_of(session.captured, file.decomposition)
    graphs = {{s.id: s.target for s in subgraphs}}
    dots = []
    for entry in file.kernels:
        graph = graphs[entry.subgraph]
        specs = tuple(tuple(i.spec for i in g) for g in (graph.activations, graph.params))
        job = CompileJob(
            (path.parent / entry.path).read_text(), entry.configurations[0][1], (("target", *specs),),
            load_chip("h200"), 60.0,
        )
        dots += [d.operand for p in backend.compile(job).plans for l in p.launches for d in l.dots]
backend.close()
print(json.dumps(dots))
"""
    result = python(composition.parent.parent.parent, code)
    assert result.code == 0, result.err
    dots = json.loads(result.out.splitlines()[-1])
    assert dots
    assert set(dots) <= {"bf16", "bfloat16"}


def test_the_loaded_block_runs_its_subkernels_and_falls_back_outside(tmp_path: Path) -> None:
    done = mkevolve(tmp_path, "model=resnet_block", "budget.evaluations=1", "evolve=none", "json=true")
    assert done.code == 0, done.err
    code = f"""
import copy, warnings
import torch, mkevolve
from mkevolve.config import parse
from mkevolve.models.source import build_model
from mkevolve.session import model_config

warnings.simplefilter("ignore")
model = build_model(model_config(parse(["model=resnet_block"])), 0)
module = model.module
fast = mkevolve.load({done.json()["composition"]!r}, module, unmeasured=True)
(x,), _ = model.example("check_1", 0)

def agree(x, composed, context=torch.no_grad):
    before = fast.report().composed
    with context():
        want, got = copy.deepcopy(module)(x), fast(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert got.stride() == want.stride()
    assert fast.report().composed - before == composed, fast.report()

agree(x, 1)
agree(x, 1, torch.inference_mode)
agree(torch.cat([x, x]), 0)
with torch.no_grad():
    state = {{k: v * 1.1 if v.is_floating_point() else v for k, v in module.state_dict().items()}}
    module.load_state_dict(state)
agree(x, 1)
with torch.no_grad():
    module.conv1.weight.mul_(0.5)
agree(x, 1)
agree(x, 0, lambda: torch.autocast("cpu", dtype=torch.bfloat16))
fast.train()
agree(x, 0)
fast.eval()
agree(x, 1)
fast.to(torch.bfloat16)
agree(x.bfloat16(), 0)
report = fast.report()
assert all(calls.subkernel == report.composed for calls in report.slots.values()), report
print("fine")
"""
    result = python(tmp_path, code, TRITON_INTERPRET="1")
    assert result.out.strip().endswith("fine"), result.err
