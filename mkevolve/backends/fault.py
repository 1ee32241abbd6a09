"""A candidate's fault, on its way from the place that found it to the result; it never leaves a child."""

import traceback

from mkevolve.data.verdict import Status


class CandidateFault(Exception):
    """The candidate broke a rule; becomes a `CompileResult` or `CaseResult` with this status and message."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


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
