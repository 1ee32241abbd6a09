"""From how a child's job ended to the results that the caller gets."""

from dataclasses import replace

from mkevolve.backends import child
from mkevolve.backends.channel import Outcome
from mkevolve.backends.jobs import failure
from mkevolve.backends.processes import Limits
from mkevolve.backends.wire import MalformedFrame, printable
from mkevolve.data.codec import decode
from mkevolve.data.verdict import Status
from mkevolve.interfaces import CaseResult, CompileResult

_FORGED = "malformed"  # candidate code wrote to the pipe: at least the last answer does not count


def compiled(outcome: Outcome, limits: Limits) -> CompileResult:
    """The result of a compile job."""
    for frame in outcome.frames[: outcome.how != _FORGED]:
        try:
            result = decode(CompileResult, frame.header.get("result"))
        except (TypeError, ValueError, KeyError, AttributeError):
            break
        return replace(result, message=printable(result.message), seconds=outcome.seconds)
    return CompileResult(*failure(outcome, limits), seconds=outcome.seconds)


def ran(outcome: Outcome, cases: int, limits: Limits) -> tuple[CaseResult, ...]:
    """The results of a run job of so many cases, up to and including the first that failed."""
    results: list[CaseResult] = []
    try:
        for frame in outcome.frames[: cases - (outcome.how == _FORGED)]:
            results.append(child.read_case_frame(frame))
            if results[-1].status is not Status.PASSED:
                return tuple(results)
    except MalformedFrame as error:
        results.append(CaseResult(Status.RUNTIME_ERROR, f"the child's answer cannot be read: {error}"))
        return tuple(results)
    if len(results) < cases:
        results.append(CaseResult(*failure(outcome, limits)))
    return tuple(results)
