"""The command line: `python -m mkevolve [VERB] KEY=VALUE ...`.

Exit codes: 0 done, 1 rejected, 2 the user's mistake (one line on standard error), 3 the machinery failed,
130 interrupted.
"""

import json
import signal
import sys
from collections.abc import Sequence
from types import FrameType, TracebackType

from mkevolve import __version__
from mkevolve.errors import MKEvolveError, UserError

_HELP = """\
usage: python -m mkevolve [VERB] KEY=VALUE ...

verbs
  search (default)  find kernels for a model:    python -m mkevolve model=resnet_block
  check             verify an edited composition: python -m mkevolve check composition=FILE
  verify            verify one kernel file:       python -m mkevolve verify model=mlp kernel=FILE

keys (conf/config.yaml has them all)
  model=NAME | model=file model.path=FILE    model.dtype=fp32|fp16|bf16  model.train=false
  precision=ieee|tf32   chip=h200            proposer=template|none      search=beam|random
  executor=auto|serial|ray                   evolve=once|none            seed=0
  budget.evaluations=N  budget.seconds=S     beam.width=4 beam.children=4 beam.rounds=3
  sandbox=auto|strict   deterministic=true|false (float atomics)
  root=DIR  store=FILE  keep=true  json=false

keys of verify (exit code 0 passed, 1 rejected, 2 your mistake)
  kernel=FILE           subgraph=ID|whole (default whole) | composition=FILE slot=NAME
  show=subgraphs        what can be named            show=contract   what a kernel must be, with a skeleton
  tier=accept|screen    configuration.NAME=VALUE     chips=[h200,b200,mi300x]
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if any(w in ("-h", "--help", "help") for w in words):
        sys.stdout.write(_HELP)
        return 0
    if "--version" in words:
        sys.stdout.write(f"mkevolve {__version__}\n")
        return 0
    sys.excepthook = _crashed
    # a terminated run ends as cleanly as an interrupted one
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(words)
    except UserError as error:
        return _fail(words, str(error), 2)
    except MKEvolveError as error:
        return _fail(words, f"{error} (not your mistake; run the same command to go on)", 3)
    except KeyboardInterrupt:
        return _fail(words, "interrupted; nothing committed is lost: run the same command to go on", 130)


def _run(words: list[str]) -> int:
    from mkevolve.config import parse

    settings = parse(words)
    # imported late: a mistyped command should not wait for torch
    from mkevolve.pipeline import check, search
    from mkevolve.verification import verify

    verbs = {"search": search, "check": check, "verify": verify}
    text, code = verbs[settings.verb](settings)
    sys.stdout.write(text + "\n")
    return code


def _fail(words: list[str], message: str, code: int) -> int:
    line = " ".join(message.split())
    if "json=true" in words:
        status = "interrupted" if code == 130 else "error"
        sys.stdout.write(json.dumps({"status": status, "error": line}) + "\n")
    sys.stderr.write(f"mkevolve: {line}\n")
    return code


def _crashed(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    """A fault of our own is no rejection, which is Python's exit code for it."""
    sys.__excepthook__(kind, value, trace)
    sys.exit(3)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
