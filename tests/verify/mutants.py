"""Single-character mutations of the functions of a candidate, generated from its tokens."""

import ast
import io
import itertools
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATORS = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "==": ("!=",),
    "+": ("-",),
    "-": ("+",),
    "*": ("+",),
    "/": ("*",),
    "//": ("/",),
    "%": ("*",),
    "&": ("|",),
    "|": ("&",),
    "+=": ("-=", "="),
    "-=": ("+=", "="),
    "*=": ("+=", "="),
}


@dataclass(frozen=True)
class Mutant:
    """A file with one token exchanged. `name` is the exchange and the changed line, unique in the file."""

    name: str
    line: int
    source: str


def mutants(source: str) -> tuple[Mutant, ...]:
    """Every exchange of an operator, a digit or a name for a similar one, in order.

    A name that is read is exchanged for one of equal length that differs in one character of one kind
    (capital, small, digit) and means something there.
    """
    lines = source.splitlines()
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    for function in _functions(source):
        stored = _stored(function)
        arguments = (*function.args.args, *function.args.kwonlyargs)
        bound = {a.arg: function.lineno for a in arguments}
        bound |= {name: line for (line, _), name in sorted(stored.items(), reverse=True)}
        for token, after in itertools.pairwise(tokens):
            if not function.body[0].lineno <= token.start[0] <= (function.end_lineno or 0):
                continue
            known = frozenset(n for n, line in bound.items() if line < token.start[0])
            fixed = token.start in stored or after.string == "="  # assigned to, or the name of an argument
            for new in () if fixed else _exchanges(token, known):
                row, (start, end) = token.start[0], (token.start[1], token.end[1])
                changed = lines[row - 1][:start] + new + lines[row - 1][end:]
                text = "\n".join([*lines[: row - 1], changed, *lines[row:]]) + "\n"
                name = f"{token.string}->{new}: {changed.strip()}"
                seen[name] += 1
                again = f" ({seen[name]})" if seen[name] > 1 else ""
                found.append(Mutant(name + again, row, text))
    return tuple(found)


def _functions(source: str) -> list[ast.FunctionDef]:
    return [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]


def _stored(function: ast.FunctionDef) -> dict[tuple[int, int], str]:
    """The names that are assigned to, by line and column."""
    return {
        (n.lineno, n.col_offset): n.id
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def _exchanges(token: tokenize.TokenInfo, known: frozenset[str]) -> Iterator[str]:
    if token.type == tokenize.OP:
        yield from _OPERATORS.get(token.string, ())
    elif token.type == tokenize.NUMBER:
        yield from _numbers(token.string)
    elif token.type == tokenize.NAME and token.string in known:
        yield from sorted(n for n in known if _near(token.string, n))


def _numbers(number: str) -> Iterator[str]:
    """The number with one digit changed: its first other than 0 by one up (9 to 1) and down, or its exponent.

    Zero becomes one.
    """
    head, e, exponent = number.partition("e")
    at = next((i for i, digit in enumerate(head) if digit in "123456789"), None)
    if at is None:
        yield "1" + number[1:]
        return
    digit = int(head[at])
    for new in (digit % 9 + 1, digit - 1):
        yield head[:at] + str(new) + head[at + 1 :] + e + exponent
    if e:
        yield number[:-1] + str((int(number[-1]) + 1) % 10)


def _near(one: str, other: str) -> bool:
    """Whether two names differ in exactly one character, which is of one kind: capital, small or digit."""
    pairs = [(a, b) for a, b in zip(one, other, strict=False) if a != b]
    return len(one) == len(other) and len(pairs) == 1 and _kind(pairs[0][0]) == _kind(pairs[0][1])


def _kind(character: str) -> tuple[bool, bool]:
    return character.isupper(), character.isdigit()
