"""The main job on a small file: search, reuse, edit, check, load, kill and go on."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import yaml
from command import (
    SHORT,
    SMALL_MODEL,
    committed,
    mkevolve,
    python,
    run_status,
    scratch,
    start,
    survivors,
    wait_for_rows,
)

from mkevolve.backends.processes import descendants

pytestmark = pytest.mark.interp


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished search of the small model."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "small.py").write_text(SMALL_MODEL)
    result = mkevolve(folder, "model=file", "model.path=small.py", "json=true", *SHORT)
    assert result.code == 0, result.err
    (folder / "first.json").write_text(result.out)
    return folder


@pytest.fixture
def job(done: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    folder = tmp_path / "job"
    shutil.copytree(done, folder)
    text = composition(folder).read_text().replace(str(done), str(folder))
    composition(folder).write_text(text)
    return folder


def composition(folder: Path) -> Path:
    return folder / "decompositions" / "small" / "composition.yaml"


def test_the_json_object_has_what_scripts_need(done: Path) -> None:
    result = json.loads((done / "first.json").read_text())
    assert result["status"] == "done"
    assert result["measured"] is False
    assert Path(result["composition"]) == composition(done)
    assert len(result["slots"]) == result["totals"]["slots"] == 2
    for slot in result["slots"]:
        assert slot["own"], slot
        assert slot["error"] <= slot["allowed"]
        assert slot["time"]["low"] <= slot["time"]["us"] <= slot["time"]["high"]
        assert 0 < slot["roofline"] < 1.5
    assert result["totals"]["own_share"] == 1.0
    assert all(Path(f).exists() for f in result["files"])


def test_every_number_can_be_traced_to_its_row(done: Path) -> None:
    import sqlite_utils

    result = json.loads((done / "first.json").read_text())
    database = sqlite_utils.Database(result["database"])
    for slot in result["slots"]:
        row = database.table("evaluation").get(slot["evidence"])
        assert row["tier"] == "accept"
        assert row["status"] == "passed"
        assert row["us"] == slot["time"]["us"]
    assert {r["status"] for r in database.table("run").rows} == {"done"}


def test_a_second_run_evaluates_nothing_and_writes_the_same(job: Path) -> None:
    before = yaml.safe_load(composition(job).read_text())
    again = mkevolve(job, "model=file", "model.path=small.py", "json=true", *SHORT).json()
    assert again["evaluated"] == 0
    assert again["cached"] > 0
    assert yaml.safe_load(composition(job).read_text()) == before


def test_the_text_report_says_what_is_not_known(job: Path) -> None:
    result = mkevolve(job, "model=file", "model.path=small.py", *SHORT)
    lines = result.out.splitlines()
    assert lines[0].startswith("not measured: run `mkevolve measure` on a GPU")
    assert "eval mode, float32, precision ieee" in result.err.splitlines()[0]
    assert "estimated" in result.out
    assert "next: " in result.out


def test_one_edited_line_must_be_checked_and_is_kept(job: Path) -> None:
    path = composition(job)
    slot = yaml.safe_load(path.read_text())["slots"][0]
    path.write_text(
        path.read_text().replace(f"implementation: {slot['implementation']}", "implementation: eager", 1)
    )
    checked = mkevolve(job, "check", f"composition={path}", "json=true")
    assert checked.code == 0, checked.err
    assert checked.json()["slots"][0]["implementation"] == "eager"
    again = mkevolve(job, "model=file", "model.path=small.py", "json=true", *SHORT).json()
    assert again["kept"] == [slot["name"]]
    assert yaml.safe_load(path.read_text())["slots"][0]["implementation"] == "eager"
    undone = mkevolve(job, "model=file", "model.path=small.py", "json=true", "keep=false", *SHORT).json()
    assert undone["kept"] == []
    assert yaml.safe_load(path.read_text())["slots"][0]["implementation"] == slot["implementation"]


def test_a_wrong_kernel_is_rejected_with_exit_code_1_and_never_loaded(job: Path) -> None:
    path = composition(job)
    slot = yaml.safe_load(path.read_text())["slots"][0]
    kernel = path.parent / slot["implementation"]
    source = kernel.read_text()
    kernel.write_text(re.sub(r"tl\.(dot|sum)\(", r"1.5 * tl.\1(", source, count=1))
    assert kernel.read_text() != source
    loading = (
        "import mkevolve, torch\n"
        "from mkevolve.errors import CompositionError\n"
        "from small import Model\n"
        f"try: mkevolve.load({str(path)!r}, Model(32).eval(), unmeasured=True)\n"
        "except CompositionError as error: print(error)\n"
    )
    assert f"mkevolve check composition={path}" in python(job, loading).out
    checked = mkevolve(job, "check", f"composition={path}", "json=true")
    assert checked.code == 1
    assert checked.json()["slots"][0]["verdict"]["status"] == "wrong_value"
    assert f"mkevolve check composition={path}" in python(job, loading).out


def test_the_loaded_module_runs_the_kernels_and_equals_the_model(job: Path) -> None:
    code = (
        "import json, torch, mkevolve\n"
        "from small import Model\n"
        "torch.manual_seed(1)\n"
        "module = Model(32).eval()\n"
        f"fast = mkevolve.load({str(composition(job))!r}, module, unmeasured=True)\n"
        "x = torch.randn(64, 32)\n"
        "with torch.no_grad():\n"
        "    torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)\n"
        "    torch.testing.assert_close(fast(x[:5]), module(x[:5]))\n"
        "print(fast.report())\n"
    )
    result = python(job, code, TRITON_INTERPRET="1")
    assert result.code == 0, result.err
    assert "composed=1" in result.out.replace(" ", "")


def test_a_killed_run_goes_on_and_repeats_only_what_was_in_flight(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(SMALL_MODEL)
    words = ["model=file", "model.path=small.py", "json=true", "budget.evaluations=4", "executor=serial"]
    words += ["evolve=none"]
    child = start(tmp_path, *words)
    wait_for_rows(child, tmp_path, 3)
    below = descendants(child.pid)
    assert len(below) >= 2  # the zygotes
    assert scratch(tmp_path)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    before = committed(tmp_path)
    assert survivors(below) == []
    assert scratch(tmp_path, seconds=15.0) == []
    result = mkevolve(tmp_path, *words).json()
    assert result["cached"] == before
    assert result["evaluated"] + result["cached"] == committed(tmp_path)


def test_scratch_folders_of_dead_owners_go_with_the_next_run(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(SMALL_MODEL)
    words = ["model=file", "model.path=small.py", *SHORT]
    child = start(tmp_path, *words)
    wait_for_rows(child, tmp_path, 1)
    os.kill(child.pid, signal.SIGSTOP)  # so that nobody cleans up, as when a machine loses power
    for pid in (*descendants(child.pid), child.pid):
        os.kill(pid, signal.SIGKILL)
    child.communicate()
    assert len(scratch(tmp_path)) == 1
    again = start(tmp_path, *words)
    again.communicate()
    assert again.returncode == 0
    assert scratch(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("executor", ["serial", "ray"])
def test_an_interrupt_ends_cleanly_with_130(tmp_path: Path, executor: str, number: signal.Signals) -> None:
    if executor == "ray":
        pytest.importorskip("ray")
    (tmp_path / "small.py").write_text(SMALL_MODEL)
    words = ["model=file", "model.path=small.py", f"executor={executor}"]
    child = start(tmp_path, *words, RAY_TMPDIR="/tmp")  # a socket's path may not be long
    wait_for_rows(child, tmp_path, 1)
    below = descendants(child.pid)
    assert len(below) >= 2
    child.send_signal(number)
    _, error = child.communicate(timeout=120)
    assert child.returncode == 130, error
    assert "run the same command to go on" in error
    assert "Traceback" not in error
    assert run_status(tmp_path) == ["interrupted"]
    assert survivors(below) == []
    assert scratch(tmp_path, seconds=15.0) == []
