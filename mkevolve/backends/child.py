"""What a forked child does: confine itself, load the candidate, do one job, send frames, end.

The only place that catches everything: code of candidates runs here.
"""

import importlib.util
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import torch

from mkevolve.backends import poison
from mkevolve.backends.confinement import Measure, Mode, Setup, confine
from mkevolve.backends.fault import CandidateFault, describe, watch_crashes
from mkevolve.backends.processes import Limits, apply_limits
from mkevolve.backends.wire import (
    Frame,
    FrameWriter,
    MalformedFrame,
    encoded_spec,
    map_tensors,
    pack,
    printable,
    scattered,
    unpack,
)
from mkevolve.data.activity import Activity
from mkevolve.data.candidate import Configuration
from mkevolve.data.codec import Json, decode, encode
from mkevolve.data.gates import Gate
from mkevolve.data.graph import TensorSpec
from mkevolve.data.measurement import Traffic
from mkevolve.data.plan import Binary, LaunchPlan
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case, CaseResult, CompileJob, CompileResult
from mkevolve.interfaces import Order as RunOrder

SOURCE, OUTPUT = "candidate.py", "output.txt"  # files of a job's folder
CACHE = "triton"  # and where compiled kernels lie there
BEGUN = Frame({"begun": True})  # all before it is our own code's doing
_HOME = ("HOME", "TMPDIR", "TRITON_HOME", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR")


@dataclass(frozen=True, slots=True)
class _PlainCase:
    """The fields of a `Case` that are no tensors."""

    key: str
    variant: str
    order: RunOrder
    instances: int | None
    launch: bool
    poison: int
    seed: int
    decoy: bool


@dataclass(frozen=True, slots=True)
class _PlainResult:
    """The fields of a `CaseResult` that are no tensors."""

    status: Status
    message: str
    inputs_changed: tuple[str, ...]
    state_changed: tuple[str, ...]
    traffic: tuple[Traffic, ...]
    launches: int
    seconds: float
    activities: tuple[Activity, ...]
    tensor: str
    index: tuple[int, ...]


def job_file(folder: Path) -> Path:
    """Where the job of a folder lies: beside it, where a confined child cannot read that a case is a test."""
    return folder.with_suffix(".json")


def serve(setup: Setup, folder: Path, limits: Limits, pipe: int) -> NoReturn:
    """Do one job and end the process. `pipe` takes the frames."""
    code = 1
    writer: FrameWriter | None = None
    try:
        writer = FrameWriter(_own_descriptors(pipe, folder / OUTPUT))
        job = json.loads(job_file(folder).read_text())
        work = _work(setup.mode)
        _settle(limits, folder, Measure.USER in setup.measures)
        confine(setup, folder)
        torch.set_num_threads(1)  # a pool of threads does not survive the fork
        for frame in work(job, folder / SOURCE):
            writer.write(frame)
        code = 0
    except BaseException as error:  # noqa: BLE001 - our own fault: the parent must hear of it
        if writer is not None:
            writer.write(Frame({"broken": f"{type(error).__name__}: {error}"}))
    finally:
        os._exit(code)  # neither exit handlers nor buffers of the zygote


def _settle(limits: Limits, folder: Path, counted_apart: bool) -> None:
    """Live in the job's folder, within the limits."""
    os.chdir(folder)
    os.umask(0o077)
    os.environ.update(dict.fromkeys(_HOME, str(folder)))
    os.environ["TRITON_CACHE_DIR"] = str(folder / CACHE)
    tempfile.tempdir = None
    sys.dont_write_bytecode = True
    apply_limits(limits, counted_apart)


def _work(mode: Mode) -> Callable[[Json, Path], Iterator[Frame]]:
    if mode is Mode.INTERPRET:
        return _run
    if mode is Mode.DEVICE:
        from mkevolve.backends import device_child

        return device_child.work
    return _compile


def load_candidate(path: Path) -> ModuleType:
    """Import a candidate file; raises `CandidateFault` where it does not parse or has no `run`."""
    spec = importlib.util.spec_from_file_location("candidate", path)
    if spec is None or spec.loader is None:
        raise CandidateFault(Status.STATIC_ERROR, f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    poison.draw_for(path.read_bytes())
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise CandidateFault(Status.STATIC_ERROR, describe(error, str(path))) from error
    if not callable(getattr(module, "run", None)):
        raise CandidateFault(Status.STATIC_ERROR, "the file defines no function `run`")
    return module


def _own_descriptors(pipe: int, output: Path) -> int:
    """Leave the child its output file and the pipe alone; return the pipe's number."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(pipe, 3)
    null = os.open(os.devnull, os.O_RDONLY)
    sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.closerange(4, 1 << 16)
    os.set_inheritable(3, False)
    return 3


def _compile(job: Json, path: Path) -> Iterator[Frame]:
    from mkevolve.backends import recorder

    asked = decode(CompileJob, job)
    yield BEGUN
    plans: list[LaunchPlan] = []
    prepared: dict[tuple[TensorSpec, ...], tuple[recorder.Prepared, ...]] = {}
    kept: dict[str, Binary] = {}
    keep = kept if asked.keep else None
    try:
        module = load_candidate(path)
        for name, activations, params in asked.variants:
            if params not in prepared:
                prepared[params] = recorder.prepare(module, params)
            plans.append(
                recorder.record(
                    module, asked.configuration, (name, activations), prepared[params], asked.chip, keep
                )
            )
        binaries = {b.id: b for b in kept.values()}
        result = CompileResult(Status.PASSED, plans=tuple(plans), binaries=tuple(binaries.values()))
    except BaseException as error:  # noqa: BLE001 - candidate code
        status, message = blame(error, path)
        if status is Status.COMPILE_ERROR and not message.startswith("line "):
            message += _diagnostic(path)
        result = CompileResult(status, message)
    yield Frame({"result": encode(result)})


def _run(job: Json, path: Path) -> Iterator[Frame]:
    from mkevolve.backends import interpreter

    match job:
        case {"configuration": configuration, "cases": list(cases), "off": list(off)}:
            settings = decode(Configuration, configuration)
            gates = decode(frozenset[Gate], off)
        case _:
            raise ValueError("not a run job")
    interpreter.install()
    watch_crashes(path.parent)
    yield BEGUN
    try:
        module = load_candidate(path)
    except BaseException as error:  # noqa: BLE001 - candidate code
        yield case_frame(CaseResult(*blame(error, path)))
        return
    for case in cases:
        try:
            result = interpreter.run_case(module, settings, read_case(case), gates)
        except BaseException as error:  # noqa: BLE001 - candidate code
            result = CaseResult(*blame(error, path))
        yield case_frame(result)
        if result.status is not Status.PASSED:
            return


def read_case(value: Json) -> Case:
    """Build a case whose tensors are mapped from the file that the parent wrote."""
    match value:
        case {"file": str(file), "activations": int(count), "specs": list(specs), "plain": plain}:
            tensors = map_tensors(specs, Path(file))
            known = decode(_PlainCase, plain)
            return Case(
                activations=tensors[:count],
                params=tensors[count:],
                **{f.name: getattr(known, f.name) for f in fields(_PlainCase)},
            )
    raise ValueError("not a case")


def encode_case(case: Case, file: Path, specs: list[Json]) -> Json:
    """Inverse of `read_case`; `specs` are those of activations and params, in this order."""
    plain = {f.name: encode(getattr(case, f.name)) for f in fields(_PlainCase)}
    return {"file": str(file), "activations": len(case.activations), "specs": specs, "plain": plain}


def case_frame(result: CaseResult) -> Frame:
    """The frame of one case: plain fields in the header, tensors in the payload.

    Where only some instances ran, only the elements that they stored travel.
    """
    plain: Json = {f.name: encode(getattr(result, f.name)) for f in fields(_PlainResult)}
    if result.written is None:
        specs, payload = pack(result.outputs)
        return Frame({"case": plain, "specs": specs}, payload)
    sparse, parts = [], []
    for output, written in zip(result.outputs, result.written, strict=True):
        parts += [written.nonzero().t().contiguous(), output[written]]
        sparse.append(encoded_spec(output))
    specs, payload = pack(parts)
    return Frame({"case": plain, "specs": specs, "sparse": sparse}, payload)


def read_case_frame(frame: Frame) -> CaseResult:
    """Inverse of `case_frame`; raises `MalformedFrame` for what a child of ours would not send.

    Elements that were not written come back as zero.
    """
    match frame.header:
        case {"case": dict(plain), "specs": specs}:
            tensors = unpack(specs, frame.payload)
            try:
                known = decode(_PlainResult, plain)
            except (TypeError, ValueError, KeyError) as error:
                raise MalformedFrame(f"case: {error}") from error
            written = None
            if "sparse" in frame.header:
                tensors, written = scattered(frame.header["sparse"], tensors)
            known = replace(known, message=printable(known.message))
            return CaseResult(
                outputs=tensors,
                written=written,
                **{f.name: getattr(known, f.name) for f in fields(_PlainResult)},
            )
    raise MalformedFrame("no case")


def blame(error: BaseException, path: Path) -> tuple[Status, str]:
    """Status and message of what candidate code raised."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, CandidateFault):
            return cause.status, cause.message
        cause = cause.__cause__
    return Status.RUNTIME_ERROR, describe(error, str(path))


def _diagnostic(path: Path) -> str:
    """The compiler's own first error line, which it writes to standard error."""
    text = (path.parent / OUTPUT).read_text(errors="replace")
    lines = [line.strip() for line in text.splitlines() if "error:" in line]
    return f" | {lines[0].replace(str(path), 'candidate.py')}" if lines else ""
