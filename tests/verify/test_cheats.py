"""Candidates that cheat, one mechanism a file, must be refused; honest ones must pass."""

import re
from pathlib import Path

import pytest
import torch

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.data.candidate import Configuration
from mkevolve.data.model import Precision
from mkevolve.data.verdict import Status, Tier
from mkevolve.measure.chips import load_chip
from mkevolve.search.params import default_configuration
from mkevolve.verify import engine
from mkevolve.verify.engine import Verifier
from mkevolve.verify.references import References

pytestmark = pytest.mark.interp

HERE = Path(__file__).parent.parent
CHEATS = sorted((HERE / "cheats").glob("*.py"))
HONEST = [*sorted((HERE / "honest").glob("*.py")), *sorted((HERE / "calibration" / "kernels").glob("*.py"))]
CALIBRATION = {
    "add_gelu_columns": "add_gelu",
    "conv_fp32": "conv",
    "conv_nhwc": "conv",
    "depthwise_nhwc": "depthwise",
    "matmul_fp32": "linear_gelu",
    "matmul_gelu": "linear_gelu",
    "softmax_row": "softmax",
    "softmax_three_pass": "softmax",
}
ACCEPT_ONLY = {"float_atomics"}  # what a few cases in various orders do not show
SMALL = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "BLOCK": 128, "ROWS": 4, "PIX": 16, "COLS": 32}


@pytest.fixture(scope="module")
def backend():
    made = InterpreterBackend()
    yield made
    made.close()


@pytest.fixture(scope="module")
def known():
    return {}


def small(source: str) -> Configuration:
    """The default, with smaller blocks: interpreting and compiling large ones takes seconds."""
    settings = default_configuration(source).settings
    return Configuration(tuple((k, min(v, SMALL.get(k, v))) for k, v in settings))


def find(path, backend, known, make_subject, tier=Tier.SCREEN):
    source = path.read_text()
    title = source.splitlines()[0].strip('"')
    name = re.split(r"[: ]", title)[0] if path.parent.name != "kernels" else path.stem
    name = CALIBRATION.get(name, name)
    half = "float16:" in title or (path.parent.name == "kernels" and not path.stem.endswith("_fp32"))
    dtype = torch.float16 if half else torch.float32
    if (name, dtype) not in known:
        subgraph, seen = make_subject(name, dtype)
        known[name, dtype] = (subgraph, References(subgraph, seen))
    subgraph, references = known[name, dtype]
    verifier = Verifier(backend, load_chip("h200"), Precision.IEEE)
    return verifier.verify(subgraph, references, source, small(source), tier)


@pytest.mark.parametrize("path", CHEATS, ids=lambda p: p.stem)
def test_cheat_is_refused_for_what_it_does(path, backend, known, make_subject, monkeypatch):
    if path.stem == "hangs":
        monkeypatch.setitem(engine.DEADLINE, Tier.SCREEN, 3.0)
    expected = re.search(r"^Expected: (.*)$", path.read_text(), re.MULTILINE)
    assert expected is not None
    tier = Tier.ACCEPT if path.stem in ACCEPT_ONLY else Tier.SCREEN
    verdict = find(path, backend, known, make_subject, tier).verdict
    assert verdict.status.value in expected[1].split(), verdict
    assert verdict.message


@pytest.mark.parametrize("path", HONEST, ids=lambda p: p.stem)
def test_honest_kernel_is_accepted(path, backend, known, make_subject):
    finding = find(path, backend, known, make_subject)
    assert finding.verdict.status is Status.PASSED, finding.verdict
    assert finding.verdict.evidence.compared > 0
    assert finding.verdict.evidence.error < finding.verdict.evidence.allowed
    assert finding.target_plan.variant == "target"
    assert finding.traffic


def test_accept_tier_runs_more(backend, known, make_subject):
    path = HERE / "honest" / "layer_norm.py"
    screened = find(path, backend, known, make_subject).verdict
    accepted = find(path, backend, known, make_subject, Tier.ACCEPT)
    assert accepted.verdict.passed
    assert accepted.verdict.evidence.cases > 2 * screened.evidence.cases
    assert [p.variant for p in accepted.plans] == ["target", "check_0", "check_1"]
