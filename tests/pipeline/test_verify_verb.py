"""`verify` as a user runs it: verdicts and exit codes, the contract and its skeleton, and mistakes."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlite_utils

from mkevolve.__main__ import main
from mkevolve.errors import UserError

MODEL = '''
"""Pointwise, so that a kernel is one line."""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x) * 2.0 + y


def get_inputs():
    return [torch.randn(24, 16), torch.randn(24, 16)]


def get_check_inputs():
    return [[torch.randn(3, 5), torch.randn(3, 5)]]
'''
RIGHT = "tl.maximum(x0, 0.0, propagate_nan=tl.PropagateNan.ALL) * 2.0 + x1"


@dataclass
class User:
    folder: Path
    capture: pytest.CaptureFixture[str]

    def verify(self, *words: str) -> tuple[int, str, str]:
        code = main(["verify", *words])
        said = self.capture.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    def model(self, *words: str) -> tuple[int, str, str]:
        return self.verify("model=file", "model.path=m.py", *words)

    def refused(self, *words: str) -> str:
        code, out, err = self.verify(*words)
        assert (code, out) == (2, "")
        return err.strip().splitlines()[-1]

    def kernel(self, value: str) -> str:
        """The printed skeleton with its one open line filled in."""
        code, out, _ = self.model("show=contract", "json=true")
        assert code == 0
        lines = json.loads(out)["skeleton"].splitlines()
        filled = [f"    value = {value}" if "TODO" in line else line for line in lines]
        (self.folder / "k.py").write_text("\n".join(filled) + "\n")
        return "kernel=k.py"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> User:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODEL)
    (tmp_path / "text.py").write_text("x = 1\n")
    (tmp_path / "latin.py").write_bytes("é".encode("latin-1"))
    (tmp_path / "null.py").write_bytes(b"x = 1\0")
    return User(tmp_path, capsys)


@pytest.mark.interp
def test_a_filled_skeleton_passes_and_is_recorded(user: User) -> None:
    words = (user.kernel(RIGHT), "tier=screen", "configuration.BLOCK=256", "chips=[h100,mi300x]", "json=true")
    code, out, _ = user.model(*words)
    found = json.loads(out)
    assert code == 0, found["message"]
    assert (found["status"], found["passed"], found["step"]) == ("passed", True, "integrity")
    assert found["configuration"] == {"BLOCK": 256, "num_warps": 4}
    assert found["subgraph"]["slots"] == ["whole"]
    assert [(r["chip"], r["status"]) for r in found["chips"]] == [("h100", "passed"), ("mi300x", "passed")]
    assert all(row["registers"] > 0 for row in found["chips"])
    assert found["plan"][0]["launches"][0]["grid"] == [2, 1, 1]
    assert found["evidence"]["compared"] > 0
    (row,) = sqlite_utils.Database(found["database"]).table("evaluation").rows
    assert (row["id"], row["tier"], row["status"]) == (found["evaluation"], "screen", "passed")
    # other rules are another environment: nothing is mixed
    code, out, _ = user.model(*words, "deterministic=false")
    other = json.loads(out)
    assert (code, other["deterministic"]) == (0, False)
    assert other["environment"] != found["environment"]
    assert other["evaluation"] != found["evaluation"]


@pytest.mark.interp
def test_a_wrong_kernel_is_rejected_with_its_evidence(user: User) -> None:
    code, out, _ = user.model(user.kernel("x0 * 2.0 + x1"), "tier=screen")
    assert code == 1
    assert out.startswith("verdict        rejected at numeric: wrong_value (tier screen)")
    assert "error" in out
    assert "allowed" in out
    assert "_result_0 on grid" in out


def test_a_file_that_breaks_the_rules_is_rejected_at_its_line(user: User) -> None:
    (user.folder / "k.py").write_text("import os\n\n\ndef run(x, y):\n    return x + y\n")
    code, out, _ = user.model("kernel=k.py")
    assert code == 1
    assert "rejected at static: static_error" in out
    assert "line 1: import os" in out
    code, out, _ = user.model("kernel=text.py", "chips=b200", "json=true")
    found = json.loads(out)
    assert (code, found["step"], found["plan"]) == (1, "static", [])
    assert found["chips"][0]["registers"] is None


def test_what_can_be_named(user: User) -> None:
    code, out, _ = user.model("show=subgraphs", "json=true")
    assert code == 0
    rows = json.loads(out)["subgraphs"]
    assert [r["slots"] for r in rows] == [["whole"], ["relu_mul_add"]]
    code, out, _ = user.model("show=subgraphs")
    assert code == 0
    assert rows[0]["id"] in out
    for word in (rows[0]["id"][:8], "relu_mul_add"):
        code, out, _ = user.model("show=contract", f"subgraph={word}")
        assert code == 0
        assert f"contract of {rows[0]['id']}" in out
        assert "run(x0, x1, *" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("subgraph=relu_mul_ad",), "did you mean 'relu_mul_add'"),
        (("subgraph=sg_zz",), "show=subgraphs lists"),
        (("configuration.BLOCK=3",), "no such tunable"),
    ],
)
def test_names_that_the_model_or_the_kernel_does_not_have(
    user: User, words: tuple[str, ...], expected: str
) -> None:
    assert expected in user.refused("model=file", "model.path=m.py", "kernel=text.py", *words)


def test_a_value_that_is_no_choice(user: User) -> None:
    kernel = user.kernel(RIGHT)
    last = user.refused("model=file", "model.path=m.py", kernel, "configuration.BLOCK=3")
    assert "configuration.BLOCK=3 is none of its choices in TUNABLES: 1024, 512, 256" in last


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("kernel=text.py",), "which model"),
        (("model=mlp",), "which kernel"),
        (("model=mlp", "kernel="), "kernel= is empty"),
        (("model=mlp", "kernel=."), "is a folder"),
        (("model=mlp", "kernel=txt.py"), "did you mean 'text.py'"),
        (("model=mlp", "kernel=/dev/null"), "no ordinary file"),
        (("model=mlp", "kernel=latin.py"), "not UTF-8"),
        (("model=mlp", "kernel=null.py"), "null bytes"),
        (("model=mpl", "kernel=text.py"), "did you mean 'mlp'"),
        (("model=mlp", "kernel=text.py", "tier=acept"), "did you mean 'accept'"),
        (("model=mlp", "show=contracts"), "did you mean 'contract'"),
        (("model=mlp", "kernel=text.py", "chips=[h200,h2000]"), "known: a100, b200"),
        (("model=mlp", "kernel=text.py", "sandbox=on"), "one of: auto, strict"),
        (("model=mlp", "kernel=text.py", "deterministic=1"), "true or false"),
        (("model=mlp", "kernel=text.py", "slot=fc"), "add composition=FILE"),
        (("composition=c.yaml", "slot=a", "subgraph=b"), "give one of them"),
        (("composition=c.yaml", "slot=a"), "c.yaml"),
        (("composition=c.yaml", "model=mlp", "slot=a"), "c.yaml"),
        (("model=mlp", "kernal=text.py"), "did you mean 'kernel'"),
    ],
)
def test_mistakes(user: User, words: tuple[str, ...], expected: str) -> None:
    assert expected in user.refused(*words)


def test_keys_of_verify_belong_to_it(user: User) -> None:
    assert main(["model=mlp", "kernel=text.py"]) == 2
    assert "python -m mkevolve verify kernel=" in user.capture.readouterr().err


def test_strict_refuses_what_the_host_lacks(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object, strict: bool = False) -> None:
        assert strict
        raise UserError("sandbox=strict, but not enforced here: seccomp")

    monkeypatch.setattr("mkevolve.session.InterpreterBackend", lacking)
    last = user.refused("model=file", "model.path=m.py", "kernel=text.py", "sandbox=strict")
    assert "not enforced here: seccomp" in last
