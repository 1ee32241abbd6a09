"""Verdicts on files of the corpus and on honest kernels, as JSON: `python all_verdicts.py [NAME ...]`.

A process of its own, so that verdicts of different processes can be compared field by field.
"""

import json
import sys

from cheat_files import CHEATS, Trials
from kernel_bench import HONEST, TUTORIALS, Bench

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.data.codec import encode
from mkevolve.data.verdict import Tier
from mkevolve.verify import engine


def verdicts(names: list[str]) -> dict[str, object]:
    """By file name; all files that a CPU can show where no name is given."""
    backend = InterpreterBackend()
    trials, bench = Trials(backend, backend), Bench(backend)
    found = {}
    try:
        for cheat in CHEATS:
            if not cheat.device and (not names or cheat.name in names):
                usual = engine.DEADLINE[cheat.tier]
                engine.DEADLINE[cheat.tier] = cheat.deadline or usual
                found[cheat.name] = encode(trials.verdict(cheat))
                engine.DEADLINE[cheat.tier] = usual
        for path in (*HONEST, *TUTORIALS):
            if not names or path.stem in names:
                found[f"{path.parent.name}/{path.stem}"] = encode(bench.find(path, Tier.SCREEN).verdict)
    finally:
        backend.close()
    return found


if __name__ == "__main__":
    json.dump(verdicts(sys.argv[1:]), sys.stdout)
