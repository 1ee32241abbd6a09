"""The command line: overrides, paths in any script, and mistakes answered in one line with the cure."""

from pathlib import Path

import pytest

from mkevolve.__main__ import main
from mkevolve.config import parse
from mkevolve.errors import ConfigError

AWKWARD = [
    "~tilde/x.py",
    "a b.py",
    "k=v.py",
    "a,b.py",
    "[x].py",
    "{y}.py",
    "größe-模型.py",
    "'q\".py",
    "${z}.py",
]


@pytest.mark.parametrize("name", AWKWARD)
def test_paths_may_hold_anything(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = parse(["model=file", f"model.path={name}", f"root={name}", f"store={name}.db"])
    assert settings.model_path == tmp_path / name
    assert settings.root.root == tmp_path / name
    assert settings.store == tmp_path / f"{name}.db"


def test_home_is_expanded_only_where_a_shell_would() -> None:
    assert parse(["model=mlp", "root=~/x"]).root.root == Path.home() / "x"
    assert parse(["model=mlp", "root=~x"]).root.root == Path.cwd() / "~x"


def test_overrides_reach_the_settings() -> None:
    settings = parse(
        ["model=mlp", "beam.width=2", "budget.evaluations=null", "precision=tf32", "search=random"]
    )
    assert settings.tree.search._target_.endswith("RandomSearch")
    assert settings.budget.evaluations is None
    assert settings.precision.value == "tf32"
    assert settings.verb == "search"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "which model"),
        (["modl=mlp"], "did you mean 'model'"),
        (["model=resnet_blok"], "did you mean 'resnet_block'"),
        (["model=mlp", "proposer=templates"], "did you mean 'template'"),
        (["model=mlp", "beam.widht=3"], "did you mean 'beam.width'"),
        (["model=mlp", "+beam.depth=3"], "without '+'"),
        (["model=mlp", "beam.width=0"], "beam.width=0 must be a whole number of at least 1"),
        (["model=mlp", "beam.width=two"], "beam.width=two must be"),
        (["model=mlp", "budget.seconds=-1"], "budget.seconds=-1 must be"),
        (["model=mlp", "budget.evaluations=1.5"], "a whole number"),
        (["model=mlp", "precision=fp8"], "one of: ieee, tf32"),
        (["model=mlp", "json=perhaps"], "true or false"),
        (["model=mlp", "ray.workers=abc"], "ray.workers=abc must be"),
        (["model=mlp", "ray.workers=-1"], "at least 1"),
        (["model=mlp", "evolve.share=7"], "from 0 to 1"),
        (["model=mlp", "search.width=9"], "set by other keys"),
        (["model=mlp", "executor.workers=2"], "set by other keys"),
        (["model=mlp", "seed=[1"], "bad override"),
        (["model=mlp", "seed"], "expected key=value"),
        (["serch", "model=mlp"], "did you mean 'search'"),
        (["model=mlp", "root="], "root= is empty"),
        (["measure"], "no device clock yet"),
        (["check", "composition=c.yaml", "model.dtype=bf16"], "names its model"),
        (["model=mlp", "model.typ=fp16"], "unknown key 'model.typ'"),
    ],
)
def test_mistakes_are_one_line_with_the_cure(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(words)
    assert expected in str(caught.value)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_help_needs_nothing_heavy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "model=resnet_block" in capsys.readouterr().out


def test_the_last_chip_wins() -> None:
    assert parse(["model=mlp"]).chip == "h200"
    assert parse(["model=mlp", "chip=a100"]).chip == "a100"
    assert parse(["model=mlp", "chip=a100", "chip=b200"]).chip == "b200"
