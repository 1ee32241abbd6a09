"""What a confined child must not be able to do; run as a script, as whatever user, it prints what it could.

Each check is one candidate that tries one thing, with the words of the measures of which one must be enforced
for the attempt to fail.
"""

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from chip_specs import H200

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.data.candidate import Configuration
from mkevolve.data.graph import TensorSpec
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case, CompileJob, RunJob

HEAD = """
import ctypes, os, socket, subprocess, sys, threading, time
import torch, triton, triton.language as tl

libc = ctypes.CDLL(None, use_errno=True)

def call(name, *args):
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)

@triton.jit
def double(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

def attempt():
{lines}

def tried():
    try:
        attempt()
    except (OSError, RuntimeError, ValueError):
        return
    raise AssertionError("it was possible")
{call}
def run(x):
    {inner}
    out = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), B=64)
    return out
"""
FILES = "process and mount namespaces|Landlock"
KERNEL = "seccomp"
UDP = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', {port}))"


@dataclass(frozen=True)
class Check:
    """`lines` must raise OSError in a child, where one of `needs` is enforced."""

    lines: str
    needs: str
    compile: bool = False


def world() -> dict[str, str]:
    """Files that there are to reach, in the home folder and in /tmp."""
    home, other = Path.home() / ".mkevolve-canary", Path(tempfile.gettempdir()) / "mkevolve-other-canary"
    for path in (home, other):
        path.write_text("canary-5417")
    return {"home": str(home), "other": str(other), "root": str(Path(__file__).parents[2])}


RUN = {
    "read_home": Check("open('{home}').read()", FILES),
    "list_home": Check("os.listdir(os.path.dirname('{home}'))", FILES),
    "write_home": Check("open('{home}', 'a').write('x')", FILES),
    "create_in_home": Check("open('{home}.new', 'w')", FILES),
    "read_tmp": Check("open('{other}').read()", FILES),
    "write_tmp": Check("open('/tmp/mkevolve-written', 'w')", FILES),
    "write_shm": Check("open('/dev/shm/mkevolve-written', 'w')", FILES),
    "read_shadow": Check("open('/etc/shadow').read()", FILES),
    "read_checkout": Check("open('{root}/pyproject.toml').read()", FILES),
    "write_package": Check("open('{root}/mkevolve/written.py', 'w')", FILES),
    "write_python": Check("open(os.path.dirname(os.__file__) + '/written.py', 'w')", FILES),
    "list_jobs": Check("os.listdir('..')", "Landlock"),
    "read_job": Check("open(os.getcwd() + '.json').read()", "Landlock"),
    "write_inputs": Check(
        "import glob; open(glob.glob(os.path.dirname(os.getcwd()) + '/inputs/*')[0], 'r+b')", "Landlock"
    ),
    "hide_inputs": Check("os.chmod(os.path.dirname(os.getcwd()) + '/inputs', 0)", KERNEL),
    "empty_home": Check("os.close(os.open('{home}', os.O_RDONLY | os.O_TRUNC))", FILES),
    "write_sysctl": Check("open('/proc/sys/kernel/core_pattern', 'w')", FILES),
    "write_own_memory": Check("open('/proc/self/mem', 'r+b')", FILES),
    "read_zygote_environment": Check("open('/proc/1/environ').read()", FILES),
    "read_zygote_memory": Check("open('/proc/1/mem', 'rb')", FILES),
    "take_zygote_files": Check("for n in os.listdir('/proc/1/fd'): os.readlink('/proc/1/fd/' + n)", FILES),
    "read_parent_environment": Check("open('/proc/{pid}/environ').read()", FILES),
    "udp": Check(UDP, "network namespace|seccomp"),
    "tcp": Check("socket.socket().connect(('127.0.0.1', {port}))", "network namespace|seccomp"),
    "abstract_socket": Check("s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect('\\0{name}')",
                             "network namespace|seccomp"),
    "netlink": Check("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", KERNEL),
    "socketpair": Check("socket.socketpair()", KERNEL),
    "shell": Check("os.posix_spawn('/bin/sh', ['sh', '-c', 'true'], {{}})", KERNEL),
    "replace_itself": Check("os.execv('/bin/true', ['true'])", KERNEL),
    "fork": Check("os.fork()", KERNEL),
    "double_fork": Check("os.fork() or os.setsid() or os.fork() or time.sleep(600)", KERNEL),
    "thread": Check("threading.Thread(target=print).start()", KERNEL),
    "kill_all": Check("os.kill(-1, 9)", KERNEL),
    "kill_zygote": Check("os.kill(1, 9)", KERNEL),
    "kill_parent": Check("os.kill({pid}, 9)", "process and mount namespaces|seccomp|Landlock"),
    "trace_zygote": Check("call('ptrace', 16, 1, 0, 0)", KERNEL),
    "write_zygote": Check("call('process_vm_writev', 1, 0, 0, 0, 0, 0)", KERNEL),
    "limit_zygote": Check("import resource; resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))", KERNEL),
    "slow_zygote": Check("os.setpriority(os.PRIO_PROCESS, 1, 19)", KERNEL),
    "raise_limit": Check("import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
                         "user namespace|process and mount namespaces|network namespace|Landlock|seccomp"),
    "new_namespace": Check("call('unshare', 0x10000000)", KERNEL),
    "mount": Check("call('mount', b'none', b'/', None, 0x44000, None)", KERNEL),
    "signal_by_file": Check("import fcntl; fcntl.fcntl(1, fcntl.F_SETOWN, 1)", KERNEL),
    "keyring": Check("call('syscall', 250 if os.uname().machine == 'x86_64' else 219, 0, -3, 1)", KERNEL),
    "bpf": Check("call('syscall', 321 if os.uname().machine == 'x86_64' else 280, 0, 0, 0)", KERNEL),
    "io_uring": Check("call('syscall', 425, 1, ctypes.create_string_buffer(120))", KERNEL),
    "memory_file": Check("os.memfd_create('x')", KERNEL),
    "shared_memory": Check("call('shmget', 5417, 4096, 0o1600)", KERNEL),
    "pipe_on_disk": Check("os.mkfifo('pipe')", KERNEL),
    "large_file": Check("f = open('big', 'wb'); f.truncate((1 << 30) + 1)", ""),
}  # fmt: skip
COMPILE = {
    "shell_compiling": Check("subprocess.run(['/bin/sh', '-c', 'true'])", "Landlock", True),
    "python_compiling": Check("subprocess.run([sys.executable, '-c', ''])", "Landlock", True),
    "home_compiling": Check("open('{home}').read()", FILES, True),
    "udp_compiling": Check(UDP, "network namespace|seccomp", True),
    "kill_compiling": Check("os.kill(-1, 9)", KERNEL, True),
    "hide_inputs_compiling": Check("os.chmod(os.path.dirname(os.getcwd()) + '/inputs', 0)", KERNEL, True),
    "hide_jobs_compiling": Check("os.chmod(os.path.dirname(os.getcwd()), 0)", KERNEL, True),
    "trace_compiling": Check("call('ptrace', 16, 1, 0, 0)", KERNEL, True),
    "namespace_compiling": Check("call('unshare', 0x10000000)", KERNEL, True),
}  # fmt: skip
CHECKS = RUN | COMPILE


def source(lines: str, module_level: bool) -> str:
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    call, inner = ("tried()\n", "pass") if module_level else ("", "tried()")
    return HEAD.format(lines=body, call=call, inner=inner)


def compiled(backend: InterpreterBackend, text: str, deadline: float = 20.0) -> tuple[Status, str]:
    spec = TensorSpec((256,), "float32", (1,))
    job = CompileJob(text, Configuration(), (("check_0", (spec,), ()),), H200, deadline)
    result = backend.compile(job)
    if result.status is Status.PASSED:
        assert result.plans[0].launches[0].resources.registers > 0  # so ptxas and cuobjdump did run
    return result.status, result.message


def ran(backend: InterpreterBackend, text: str, deadline: float = 20.0) -> tuple[Status, str]:
    case = Case("ramp", "check_0", (torch.arange(10.0),), ())
    (result,) = backend.run(RunJob(text, Configuration(), (case,), deadline))
    return result.status, result.message


def outcomes(backend: InterpreterBackend, names: Iterable[str] = ()) -> dict[str, str]:
    """By check: nothing where the attempt failed and the rest of the candidate passed, else what was said."""
    kept = world()
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    local = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with udp, local:
        udp.bind(("127.0.0.1", 0))
        local.bind(f"\0mkevolve-canary-{os.getpid()}")
        places = kept | {
            "port": str(udp.getsockname()[1]),
            "name": f"mkevolve-canary-{os.getpid()}",
            "pid": str(os.getpid()),
        }
        found = {}
        for name in names or CHECKS:
            check = CHECKS[name]
            text = source(check.lines.format(**places), check.compile)
            status, message = (compiled if check.compile else ran)(backend, text)
            found[name] = "" if status is Status.PASSED else f"{status}: {message}"
        for name, listener in (("udp_heard", udp), ("local_heard", local)):
            listener.setblocking(False)
            try:
                found[name] = f"heard {listener.recv(10)!r}"
            except BlockingIOError:
                found[name] = ""
    left = [p for p in (Path("/tmp/mkevolve-written"), Path("/dev/shm/mkevolve-written")) if p.exists()]
    unchanged = all(Path(kept[k]).read_text() == "canary-5417" for k in ("home", "other"))
    found["files"] = "" if unchanged and not left and not Path(kept["home"] + ".new").exists() else "written"
    for key in ("home", "other"):
        Path(kept[key]).unlink()
    return found


if __name__ == "__main__":
    made = InterpreterBackend()
    said = {"protection": made.protection.enforced, "outcomes": outcomes(made), "user": os.geteuid()}
    made.close()
    sys.stdout.write(json.dumps(said))
