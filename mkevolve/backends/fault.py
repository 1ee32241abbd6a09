"""A candidate's fault, on its way from the place that found it to the result; it never leaves a child."""

import faulthandler
import re
import traceback
from pathlib import Path

from mkevolve.backends.scratch import plain_text
from mkevolve.data.verdict import Status

CRASH = "crash.txt"  # in a job's folder: where the child was when a signal ended it

_FRAME = re.compile(r'^  File "(?P<path>.*)", line (?P<line>\d+) in (?P<name>\S+)$', re.MULTILINE)
_IN_A_LAUNCH = "_interpret"  # every launch passes through this function of `interpreter_launch`


class CandidateFault(Exception):
    """The candidate broke a rule; becomes a `CompileResult` or `CaseResult` with this status and message.

    `tensor` and `index` name the element that it is about, where it is about one.
    """

    def __init__(self, status: Status, message: str, tensor: str = "", index: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.tensor = tensor
        self.index = index


def candidate_line(error: BaseException, path: str) -> int | None:
    """Line of the candidate file `path` in which `error` arose: of its innermost frame in that file."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    return lines[-1] if lines else None


def describe(error: BaseException, path: str) -> str:
    """`line 12: IndexError: ...`, for people; an exception raised outside the candidate has no line."""
    line = candidate_line(error, path)
    text = "".join(traceback.format_exception_only(error)).strip().splitlines()
    what = text[-1] if text else type(error).__name__
    return f"line {line}: {what}" if line else what


def watch_crashes(folder: Path) -> None:
    """Have this process write its stack into a file of `folder` when SIGSEGV, SIGBUS or SIGABRT ends it."""
    faulthandler.enable((folder / CRASH).open("w"), all_threads=False)


def crash(folder: Path, candidate: str) -> tuple[Status, str] | None:
    """What a child that died by SIGSEGV was doing; None where it left no word, or was in a launch.

    Between launches no tensor may be touched (`interpreter_launch.activated`): to do it is a fault of the
    source. The word is that of the child: it makes a refusal clearer and is never evidence for a candidate.
    """
    frames = list(_FRAME.finditer(plain_text(folder / CRASH)))
    if any(frame["name"] == _IN_A_LAUNCH for frame in frames):
        return None
    for frame in frames:
        if frame["path"] == candidate:
            what = f"{frame['name']} reads or writes a tensor outside its launches"
            return Status.STATIC_ERROR, f"line {frame['line']}: {what}"
    return None
