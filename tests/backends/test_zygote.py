"""Children that misbehave cost themselves alone, and nothing of them is left, also where the host confines
nothing (`open_backend`): what the sandbox denies beyond that is in `test_sandbox.py`.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.data.candidate import Configuration
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case, CaseResult, RunJob

pytestmark = pytest.mark.interp

HEAD = """
import os, signal, subprocess, sys, time
import torch, triton, triton.language as tl

@triton.jit
def double(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

def doubled(x):
    out = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), B=64)
    return out

"""
GOOD = HEAD + "def run(x):\n    return doubled(x)\n"


def bad(*lines: str) -> str:
    return HEAD + "def run(x):\n" + "".join(f"    {line}\n" for line in (*lines, "return doubled(x)"))


@pytest.fixture(scope="module")
def small() -> Iterator[InterpreterBackend]:
    """A backend of its own, with little memory, started while a key lies in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_API_KEY", "canary-5417")
        backend = InterpreterBackend(memory_gib=1.5)
        assert works(backend)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def open_backend() -> Iterator[InterpreterBackend]:
    """Children may start processes, signal and write anywhere: nothing but the zygote keeps order."""
    made = InterpreterBackend(confine=False)
    yield made
    made.close()


def case(key: str, *activations: torch.Tensor) -> Case:
    return Case(key, "check_0", activations, ())


def run(backend, source: str, *cases: Case, deadline: float = 20.0) -> tuple[CaseResult, ...]:
    cases = cases or (case("ramp", torch.arange(10.0)),)
    return backend.run(RunJob(source, Configuration(), cases, deadline))


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def works(backend) -> bool:
    (result,) = run(backend, GOOD)
    return result.status is Status.PASSED and torch.equal(result.outputs[0], torch.arange(10.0) * 2)


def test_values_strides_and_dtypes_come_back(backend):
    base = torch.randn(6, 8)
    cases = [
        case("t", base.t()),
        case("half", torch.randn(5, dtype=torch.float16)),
        case("bf16", torch.randn(70).bfloat16()),
        case("int", torch.arange(9, dtype=torch.int64)),
    ]
    results = run(backend, GOOD, *cases)
    assert [r.status for r in results] == [Status.PASSED] * 4, [r.message for r in results]
    for one, result in zip(cases, results, strict=True):
        (want,), (got,) = one.activations, result.outputs
        assert torch.equal(got, want * 2)
        assert (got.dtype, got.stride()) == (want.dtype, torch.empty_like(want).stride())


def test_the_first_failing_case_ends_the_job(backend):
    source = bad("if x.numel() == 3: raise ValueError('three')")
    results = run(
        backend, source, case("a", torch.ones(2)), case("b", torch.ones(3)), case("c", torch.ones(4))
    )
    assert [r.status for r in results] == [Status.PASSED, Status.RUNTIME_ERROR]
    assert results[1].message == f"line {source.splitlines().index('def run(x):') + 2}: ValueError: three"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["os.kill(os.getpid(), signal.SIGILL)"], "SIGILL"),
        (["print('last words', flush=True)", "os.abort()"], "SIGABRT: last words"),
        (["os._exit(0)"], "without an answer (exit code 0)"),
        (["sys.exit(3)"], "SystemExit"),
        (["bytearray(1 << 40)"], "MemoryError"),
        (["open('big', 'wb').truncate(1 << 40)"], "File too large"),
        (["os.write(3, b'x' * 100)", "os._exit(0)"], "cannot be read: something else"),
        (["os.write(3, bytes(100))", "os._exit(0)"], "cannot be read: something else"),
        (["while True: os.write(3, b'flood' * 10000)"], "cannot be read: something else"),
        (["os.close(3)"], "without an answer"),
        (["os.dup2(1, 3)"], "without an answer"),
        (["os.kill(os.getpid(), signal.SIGKILL)"], "killed twice"),
    ],
)  # fmt: skip
def test_crashes_are_results(backend, lines, words):
    (result,) = run(backend, bad(*lines))
    assert result.status is Status.RUNTIME_ERROR
    assert words in result.message
    assert works(backend)


def test_garbage_after_the_answer_takes_it_back(backend):
    end = "os._exit = lambda code, end=os._exit: (os.write(3, b'y' * 64), end(code))"
    (result,) = run(backend, bad(end))
    assert result.status is Status.RUNTIME_ERROR
    assert "cannot be read" in result.message


def test_a_forked_copy_of_a_child_answers_nothing(open_backend):
    (result,) = run(open_backend, bad("os.fork()"))
    assert result.status is Status.PASSED, result.message
    assert works(open_backend)


def test_a_memory_hog_is_stopped_at_its_limit(small):
    (result,) = run(small, bad("keep = []", "while True: keep.append(bytes(1 << 26))"))
    assert result.status is Status.RUNTIME_ERROR
    assert "MemoryError" in result.message
    assert works(small)


def test_a_job_that_the_caller_breaks_off_does_not_disturb_the_next(small):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            run(small, bad("while True: pass"), deadline=30)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert works(small)


def test_results_before_a_crash_are_kept(backend):
    source = bad("if x.numel() == 3: os.kill(os.getpid(), signal.SIGILL)")
    results = run(backend, source, case("a", torch.ones(2)), case("b", torch.ones(3)))
    assert [r.status for r in results] == [Status.PASSED, Status.RUNTIME_ERROR]
    assert "SIGILL" in results[1].message


def test_a_child_killed_once_from_outside_is_run_again(open_backend, tmp_path):
    once = f"open({str(tmp_path / 'once')!r}, 'x').close()"
    kill = "    os.kill(os.getpid(), signal.SIGKILL)"
    (result,) = run(open_backend, bad("try:", f"    {once}", "except OSError: pass", "else:", kill))
    assert result.status is Status.PASSED, result.message


def test_a_second_try_starts_from_the_source_that_was_given(backend):
    rewrite = "open('candidate.py', 'w').write('raise ValueError(1)')"
    (result,) = run(backend, bad(rewrite, "os.kill(os.getpid(), signal.SIGKILL)"))
    assert "killed twice" in result.message


def test_a_deadline_counts_computing_not_waiting_for_a_turn(backend):
    (result,) = run(backend, bad("time.sleep(2.0)"), deadline=1.0)
    assert result.status is Status.PASSED, result.message
    start = time.monotonic()
    (result,) = run(backend, bad("time.sleep(600)"), deadline=0.5)
    assert result.status is Status.TIMEOUT
    assert time.monotonic() - start < 10


def test_a_hang_ends_at_the_deadline_with_all_that_it_started(open_backend, tmp_path):
    note = tmp_path / "pids"
    source = bad(
        "for _ in range(3):",
        "    if os.fork() == 0:",
        "        os.setsid()",
        "        if os.fork() == 0: os.setsid()",
        "        signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        f"        open({str(note)!r}, 'a').write(f'{{os.getpid()}}\\n')",
        "        time.sleep(600)",
        f"open({str(note)!r}, 'a').write(f'{{os.getpid()}}\\n')",
        "while True: pass",
    )
    start = time.monotonic()
    (result,) = run(open_backend, source, deadline=1.5)
    assert result.status is Status.TIMEOUT
    assert "1.5 s" in result.message
    assert time.monotonic() - start < 10
    pids = [int(line) for line in note.read_text().split()]
    assert len(pids) == 7
    assert not any(alive(pid) for pid in pids)
    assert works(open_backend)


def test_what_outlives_its_child_is_killed_too(open_backend, tmp_path):
    note = tmp_path / "pid"
    source = bad(
        "made = subprocess.Popen(['sleep', '600'], start_new_session=True)",
        f"open({str(note)!r}, 'w').write(str(made.pid))",
    )
    (result,) = run(open_backend, source)
    assert result.status is Status.PASSED
    assert not alive(int(note.read_text()))


def test_a_fork_bomb_costs_one_child(open_backend):
    (result,) = run(open_backend, bad("while True: os.fork()"), deadline=20)
    assert result.status is Status.RUNTIME_ERROR
    assert "processes" in result.message
    assert works(open_backend)


@pytest.mark.slow
def test_too_many_bytes_in_files_cost_one_child(open_backend):
    lines = ("for i in range(40): open(f'f{i}', 'wb').write(bytes(1 << 26))", "time.sleep(60)")
    (result,) = run(open_backend, bad(*lines), deadline=30)
    assert (result.status, result.message) == (
        Status.RUNTIME_ERROR,
        "the child wrote more than 1 GiB of files",
    )


@pytest.mark.slow
def test_files_without_a_name_count_too(open_backend):
    lines = ("keep = [open(f'f{i}', 'wb') for i in range(40)]", "[os.unlink(f.name) for f in keep]")
    write = "[(f.write(bytes(1 << 26)), f.flush()) for f in keep]"
    (result,) = run(open_backend, bad(*lines, write, "time.sleep(60)"), deadline=30)
    assert (result.status, result.message) == (
        Status.RUNTIME_ERROR,
        "the child wrote more than 1 GiB of files",
    )


@pytest.mark.slow
def test_processes_share_one_limit_of_memory():
    """Where a child may start any: each alone stays below the limit."""
    made = InterpreterBackend(memory_gib=1.5, confine=False)
    lines = ("for _ in range(3): os.fork()", "keep = b'x' * (900 << 20)", "time.sleep(60)")
    try:
        (result,) = run(made, bad(*lines), deadline=30)
    finally:
        made.close()
    assert result.status is Status.RUNTIME_ERROR
    assert "more than 1.5 GiB" in result.message


def test_what_a_child_says_obeys_no_terminal_and_ends(backend):
    (result,) = run(backend, bad(r"raise ValueError('\x1b[31mred\x07' + 'x' * 100_000)"))
    assert "?[31mred?xxx" in result.message
    assert len(result.message) < 3000


def test_killed_zygotes_are_replaced_with_what_they_watched(backend):
    assert works(backend)
    before = backend.zygotes()
    os.kill(before[1], signal.SIGKILL)
    assert works(backend)
    assert backend.zygotes()[0] == before[0]
    assert backend.zygotes()[1] != before[1]


def test_what_kills_its_zygote_twice_is_judged(open_backend, tmp_path):
    note = tmp_path / "pid"
    source = bad(
        f"open({str(note)!r}, 'a').write(f'{{os.getpid()}}\\n')",
        "os.kill(os.getppid(), signal.SIGKILL)",
        "time.sleep(600)",
    )
    (result,) = run(open_backend, source)
    assert result.status is Status.RUNTIME_ERROR
    assert "lost twice" in result.message
    pids = [int(line) for line in note.read_text().split()]
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)
    assert works(open_backend)


def test_environment_and_working_folder_of_a_child(small):
    (result,) = run(
        small,
        bad(
            "seen = ' '.join(f'{k}={v}' for k, v in os.environ.items())",
            "seen += open('/proc/self/environ').read()",
            "assert 'canary-5417' not in seen",
            "assert os.environ['HOME'] == os.environ['TMPDIR'] == os.getcwd()",
            "assert sorted(int(n) for n in os.listdir('/proc/self/fd'))[:4] == [0, 1, 2, 3]",
            "open('leftover', 'w').write('x')",
            "raise ValueError(os.getcwd())",
        ),
    )
    folder = Path(result.message.split("ValueError: ")[1])
    assert not folder.exists()
    assert folder.parent.exists()


def test_inputs_cannot_be_changed_for_the_next_case(backend):
    ramp = case("shared", torch.arange(10.0))
    source = bad("x.untyped_storage()[0] = 77")
    run(backend, source, ramp)
    (result,) = run(backend, GOOD, ramp)
    assert torch.equal(result.outputs[0], torch.arange(10.0) * 2)


def test_two_backends_and_threads_at_once(backend, small):
    found: list[bool] = []
    threads = [threading.Thread(target=lambda b=b: found.append(works(b))) for b in (backend, small) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
    assert len({*backend.zygotes(), *small.zygotes()}) == 4


def test_close_ends_all_and_the_object_and_its_copy_can_be_used_again(small):
    copy = pickle.loads(pickle.dumps(small))
    assert copy.zygotes() == ()
    (result,) = run(small, bad("raise ValueError(os.getcwd())"))
    scratch = Path(result.message.split("ValueError: ")[1]).parent
    zygotes = small.zygotes()
    small.close()
    assert not any(alive(pid) for pid in zygotes)
    assert not scratch.exists()
    assert works(small)


def test_nothing_is_left_when_the_parent_is_killed():
    code = (
        "import sys, time, torch; sys.path.insert(0, sys.argv[1])\n"
        "import test_zygote as t; from mkevolve.backends.cpu import InterpreterBackend\n"
        "b = InterpreterBackend(); assert t.works(b); print(*b.zygotes(), flush=True)\n"
        "t.run(b, t.bad('while True: pass'), deadline=600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.3)
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def test_the_parent_loads_no_triton():
    code = "import sys, mkevolve.backends.cpu; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_zygote_that_fails_while_loading_removes_the_folder_of_a_dead_parent(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "triton").write_text("no folder")  # so that the first compile fails
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        zygote = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mkevolve.backends.zygote",
                str(theirs.fileno()),
                "compile",
                str(scratch),
                "",
            ],
            env={**os.environ, "TRITON_CACHE_DIR": str(scratch / "triton")},
            pass_fds=[theirs.fileno()],
            stderr=subprocess.DEVNULL,
        )
    assert zygote.wait(60) != 0
    assert not scratch.exists()
