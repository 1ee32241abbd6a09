"""Candidate code reaches nothing but its own folder, whoever runs us; what is not enforced is said."""

import ast
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sandbox_checks import CHECKS, HEAD, compiled, outcomes, ran, source

from mkevolve.backends import sandbox
from mkevolve.backends.confinement import Measure
from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.backends.scratch import sweep
from mkevolve.data.verdict import Status
from mkevolve.errors import UserError

pytestmark = pytest.mark.interp

HERE = Path(__file__).parent
NAMES = (*CHECKS, "udp_heard", "local_heard", "files")
AS_USER = """
import os, sys, tempfile
from mkevolve.backends import linux
user = 65534
linux.unshare("mount")
linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
spare = tempfile.mkdtemp()
for number, path in enumerate(sys.argv[2:]):
    # Python may be installed below a folder of root's: show it, and only it, to the user.
    closed = [p for p in ["/" + "/".join(path.split("/")[1:n]) for n in range(2, path.count("/") + 2)]
              if not os.stat(p).st_mode & 1]
    if not closed:
        continue
    kept = f"{spare}/{number}"
    os.mkdir(kept)
    linux.mount(path, kept, None, linux.MS_BIND | linux.MS_REC)
    linux.mount("tmpfs", closed[0], "tmpfs", 0, "mode=0755")
    os.makedirs(path)
    linux.mount(kept, path, None, linux.MS_BIND | linux.MS_REC)
os.chmod(spare, 0o711)
home = tempfile.mkdtemp()
os.chown(home, user, user)
os.environ["HOME"] = home
os.setgroups([])
os.setgid(user)
os.setuid(user)
os.execv(sys.executable, [sys.executable, sys.argv[1]])
"""


@pytest.fixture(scope="module")
def found(backend: InterpreterBackend) -> dict[str, str]:
    return outcomes(backend)


@pytest.fixture(scope="module")
def found_as_user() -> dict[str, object]:
    """The same checks in a process of the user `nobody`, where root runs the tests."""
    if os.geteuid() != 0:
        pytest.skip("the tests are not run by root: `found` is a user's already")
    places = [str(HERE), sys.base_prefix, sys.prefix]
    words = [sys.executable, "-c", AS_USER, str(HERE / "sandbox_checks.py"), *places]
    root = str(HERE.parents[1])
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": root}, cwd="/"
    )
    if "PermissionError" in done.stderr and "linux.py" in done.stderr:
        pytest.skip(f"root may not mount here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    said: dict[str, object] = json.loads(done.stdout)
    assert said["user"] == 65534
    return said


def expect_denied(name: str, said: dict[str, str], enforced: tuple[str, ...]) -> None:
    needs = CHECKS[name].needs if name in CHECKS else ""
    if needs and not set(needs.split("|")) & set(enforced):
        pytest.skip(f"not enforced here: {needs}")
    assert said[name] == ""


@pytest.mark.parametrize("name", NAMES)
def test_a_candidate_cannot(name, backend, found):
    expect_denied(name, found, backend.protection.enforced)


@pytest.mark.parametrize("name", NAMES)
def test_a_candidate_of_a_user_cannot(name, found_as_user):
    expect_denied(name, found_as_user["outcomes"], found_as_user["protection"])


def test_a_child_sees_no_process_of_the_host_and_none_of_its_variables(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "canary-5417")
    seen = "sorted(p for p in os.listdir('/proc') if p.isdigit()), sorted(os.environ.values())"
    made = InterpreterBackend()
    try:
        _, message = ran(made, HEAD.format(lines="    pass", call="", inner=f"raise ValueError(({seen}))"))
    finally:
        made.close()
    processes, variables = ast.literal_eval(message.partition("ValueError: ")[2])
    assert not any("canary" in value for value in variables)
    if Measure.PROCESSES.value in made.protection.enforced:
        assert len(processes) == 2
        assert processes[0] == "1"  # the zygote


def processes_of(backend: InterpreterBackend) -> set[int]:
    """The processes that carry the name of the backend's scratch folder, those forked by zygotes too."""
    scratch = Path(f"/proc/{backend.zygotes()[0]}/cwd").readlink()
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(scratch) in path.read_text():
                found.add(int(path.parent.name))
        except OSError:  # it ended while we looked
            continue
    return found


GOOD = source("raise OSError", False)
ORPHANS = """
def orphan():
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                while True: time.sleep(0.01)
            os._exit(0)
orphan()
"""
BOMB = "while True: os.fork()"
HOG = source("while True: keep.append(bytes(1 << 28))", False) + "keep = []\n"


def test_a_candidate_that_forks_while_it_compiles_leaves_no_orphan(backend):
    assert compiled(backend, GOOD)[0] is Status.PASSED
    before = processes_of(backend)
    assert len(before) >= 2
    status, message = compiled(backend, GOOD + ORPHANS)
    assert status is Status.PASSED, message
    assert processes_of(backend) == before


def test_a_bomb_of_threads_costs_one_child(backend):
    start = "threading.Thread(target=time.sleep, args=(60,)).start()"
    status, message = compiled(backend, f"{GOOD}threading.stack_size(1 << 15)\nwhile True: {start}\n")
    assert status is Status.RUNTIME_ERROR
    assert "thread" in message  # counted by the kernel, or by the zygote where root runs it
    assert compiled(backend, GOOD)[0] is Status.PASSED


def test_a_fork_bomb_while_compiling_costs_one_child(backend):
    assert compiled(backend, GOOD)[0] is Status.PASSED
    before = processes_of(backend)
    status, message = compiled(backend, GOOD + BOMB)
    assert status is Status.RUNTIME_ERROR
    assert "processes" in message or "BlockingIOError" in message, message
    assert processes_of(backend) == before
    assert compiled(backend, GOOD)[0] is Status.PASSED


def test_candidates_that_exhaust_memory_are_judged_also_twice_in_a_row(backend):
    for _ in range(2):
        status, message = ran(
            backend, source("while True: keep.append(bytes(1 << 28))", False) + "keep = []\n"
        )
        assert status is Status.RUNTIME_ERROR
        assert "MemoryError" in message


@pytest.mark.parametrize("measure", list(Measure))
def test_what_is_not_enforced_is_said_and_refused_by_strict(measure):
    made = InterpreterBackend(without=frozenset({measure}))
    assert f"{measure} (switched off)" in made.protection.missing
    assert measure.value not in made.protection.enforced
    with pytest.raises(UserError, match="sandbox=strict") as caught:
        InterpreterBackend(strict=True, without=frozenset({measure}))
    assert measure.value in str(caught.value)
    assert "Cure: " in str(caught.value)
    assert "\n" not in str(caught.value)


HARMLESS = (
    "read_home", "list_home", "read_tmp", "list_jobs", "read_job", "read_checkout", "udp", "netlink",
    "abstract_socket", "socketpair", "shell", "thread", "memory_file", "pipe_on_disk", "shell_compiling",
)  # fmt: skip


def test_without_confinement_all_is_missing_and_the_attempts_succeed():
    made = InterpreterBackend(confine=False)
    assert made.protection.enforced == ()
    assert len(made.protection.missing) == len(Measure)
    try:
        said = outcomes(made, HARMLESS)
    finally:
        made.close()
    assert [name for name in HARMLESS if "it was possible" not in said[name]] == []
    assert said["udp_heard"] == "heard b'x'"


def test_strict_takes_a_host_that_enforces_all():
    if sandbox.probe().missing:
        pytest.skip(f"not such a host: {sandbox.probe().missing}")
    assert InterpreterBackend(strict=True).protection == sandbox.probe()


def test_a_sweep_of_old_scratch_folders_does_not_disturb_a_trial():
    done = threading.Event()

    def sweep_on() -> None:
        while not done.is_set():
            sweep()

    sweeper = threading.Thread(target=sweep_on)
    sweeper.start()
    try:
        assert [m for m in sandbox.trial() if m.value in sandbox.probe().enforced] == []
    finally:
        done.set()
        sweeper.join()


def test_the_probe_finds_what_a_host_refuses(tmp_path):
    """The host is this one under a filter that refuses new namespaces, as that of a container does."""
    code = (
        "import os, sys; from mkevolve.backends import seccomp\n"
        "seccomp.restrict(seccomp.Allowed(processes=True))\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'mkevolve.backends.sandbox', sys.argv[1]])"
    )
    if Measure.SECCOMP.value not in sandbox.probe().enforced:
        pytest.skip("no such filter here")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    reasons = json.loads(done.stdout)
    assert {Measure.USER, Measure.NETWORK, Measure.PROCESSES} <= set(reasons)
    assert reasons[Measure.USER] == "unshare: Operation not permitted"
    assert Measure.SECCOMP not in reasons
    tried = sandbox.probe()
    assert (Measure.LANDLOCK in reasons) == (Measure.LANDLOCK.value not in tried.enforced)
