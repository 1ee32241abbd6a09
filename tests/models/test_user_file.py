import textwrap

import pytest
import torch

from mkevolve.capture import capture, check_capture
from mkevolve.data.model_config import ModelConfig
from mkevolve.errors import ModelError
from mkevolve.models.source import build_model

HEAD = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width=4, *, bias=True):
        super().__init__()
        self.line = nn.Linear(width, width, bias=bias)
    def forward(self, x, shift=0.0):
        return self.line(x) + shift
"""
INPUTS = """
def get_inputs():
    return [torch.randn(3, 4)]
"""


@pytest.fixture
def build(tmp_path):
    def make(text, name="my model [1]=é.py", **changes):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return build_model(ModelConfig("", path=str(path), **changes))

    return make


def test_a_file_in_the_common_form(build):
    model = build(HEAD + INPUTS + "def get_init_inputs():\n    return [4]\n")
    assert (model.name, model.variants, model.dtype) == ("my model [1]=é", ("target",), "float32")
    captured = capture(model)
    check_capture(model, captured)
    assert len(captured.checks) == 2


@pytest.mark.parametrize(
    "init", ["[[4], {'bias': False}]", "{'bias': False}", "[[], {'width': 4, 'bias': False}]"]
)
def test_arguments_of_the_constructor_by_name(build, init):
    assert build(HEAD + INPUTS + f"def get_init_inputs():\n    return {init}\n").module.line.bias is None


def test_inputs_by_name_and_without_init_inputs(build):
    model = build(HEAD + "def get_inputs():\n    return {'shift': 2.0, 'x': torch.ones(3, 4)}\n")
    args, kwargs = model.example("target")
    assert (torch.equal(args[0], torch.ones(3, 4)), args[1], kwargs) == (True, 2.0, {})


def test_check_inputs_are_variants(build):
    checks = "def get_check_inputs():\n    return [[torch.randn(5, 4)], (torch.randn(1, 4),)]\n"
    model = build(HEAD + INPUTS + checks)
    assert model.variants == ("target", "check_1", "check_2")
    captured = capture(model)
    assert [v.leaves[0].spec.shape for v in captured.variants] == [(3, 4), (5, 4), (1, 4)]


def test_dtype_and_mode_are_applied(build):
    model = build(HEAD + INPUTS, dtype="bfloat16", train=True)
    assert (model.module.line.weight.dtype, model.example("target")[0][0].dtype) == (torch.bfloat16,) * 2
    assert model.module.training


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, r"defines no get_inputs\(\)"),
        ("from torch import nn\nclass Net(nn.Module): pass\n" + INPUTS, r"no class Model \(it has Net"),
        (HEAD + "def get_inputs():\n    return torch.ones(3)\n", r"returned a Tensor; return the arguments"),
        (HEAD + "def get_inputs():\n    return [undefined]\n", r"get_inputs\(\) failed: NameError.*line 12"),
        (HEAD + INPUTS + "def get_init_inputs():\n    return ['x', 'y', 'z']\n", r"cannot be built"),
        (HEAD + INPUTS + "def get_init_inputs():\n    return 3\n", r"get_init_inputs\(\) returned a int"),
        (
            HEAD + INPUTS + "def get_check_inputs():\n    return 3\n",
            r"get_check_inputs\(\) must return a list",
        ),
        ("import no_such_module_at_all\n", r"needs the module no_such_module_at_all.*install"),
        ("def broken(:\n", r":1: invalid syntax"),
        ("raise RuntimeError('no luck')\n", r"cannot be imported: RuntimeError: no luck \(line 1\)"),
        ("import sys\nsys.exit(3)\n", r"cannot be imported: SystemExit: 3 \(line 2\)"),
        (
            HEAD + "def get_inputs():\n    raise SystemExit(3)\n",
            r"get_inputs\(\) failed: SystemExit: 3 \(line 12\)",
        ),
        ("def get_inputs(): return []\ndef Model(): return 3\n", r"makes a int, not a torch\.nn\.Module"),
    ],
)
def test_mistakes_are_one_line_with_the_file(build, text, message):
    with pytest.raises(ModelError, match=message) as caught:
        build(text, name="user.py")
    assert "user.py" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_folder_and_foreign_file(tmp_path):
    for path, message in (
        (tmp_path / "none.py", "does not exist"),
        (tmp_path, "is a folder"),
        (tmp_path / "model.txt", r"must end in \.py"),
    ):
        (tmp_path / "model.txt").write_text("text")
        with pytest.raises(ModelError, match=message):
            build_model(ModelConfig("", path=str(path)))


def test_forward_that_fails_on_get_inputs(build):
    model = build(HEAD + "def get_inputs():\n    return [torch.randn(3, 5)]\n")
    with pytest.raises(ModelError, match=r"3x5 float32.*RuntimeError"):
        capture(model)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            "torch.ones(3, 4, device='meta')",
            r"on the device meta .*real CPU tensors \(CUDA tensors are moved",
        ),
        ("torch.ones(300, 400).numpy()", r"an input is a numpy\.ndarray; .*torch\.from_numpy"),
        ("object()", r"an input is a builtins\.object; pass tensors"),
    ],
)
def test_inputs_that_cannot_be_used_are_named_by_kind(build, inputs, message):
    model = build(HEAD + f"def get_inputs():\n    return [{inputs}]\n", name="user.py")
    with pytest.raises(ModelError, match=message) as caught:
        capture(model)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_home_folder_in_a_path(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m.py").write_text(HEAD + INPUTS)
    assert build_model(ModelConfig("", path="~/m.py")).name == "m"
