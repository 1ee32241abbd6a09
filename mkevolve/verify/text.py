"""A candidate file as text: what the parser, Triton's own reading of kernels and people see must be one.

Triton and its interpreter do not use the compiled function: they fetch its lines and look for a `def` there,
the first that is not indented or the last of any kind. A `def` within a string would be another kernel.
"""

import ast
import re
import unicodedata

from mkevolve.verify.source import Violation

_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_DEFINITION = re.compile(r"^\s*(async\s+)?(def|class)\b")
_UTF8 = frozenset({"utf-8", "utf8", "utf_8"})


def check_text(source: str) -> None:
    """Refuse characters that hide code, and encodings that change it; raises Violation."""
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise _at(source, error.start, "a character that is no text") from None
    for number, character in enumerate(source):
        if character in "\n\t" or (character.isascii() and character.isprintable()):
            continue
        if character == "\r" and source[number + 1 : number + 2] == "\n":
            continue
        if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp"):
            raise _at(source, number, f"an invisible character (U+{ord(character):04X}): remove it")
    for number, line in enumerate(source.split("\n", 2)[:2], 1):
        match = _COOKIE.match(line)
        if match and match[1].lower() not in _UTF8:
            raise _line(number, f"the encoding {match[1]}: a candidate is UTF-8")


def check_lines(function: ast.FunctionDef, source: str) -> None:
    """Refuse a jit function in which another line looks like the start of a function; raises Violation."""
    first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
    lines = source.split("\n")
    for number in range(first, (function.end_lineno or first) + 1):
        if (number == function.lineno) != bool(_DEFINITION.match(lines[number - 1])):
            message = f"a line of the jit function {function.name} looks like a def (in a text?): reword it"
            raise _line(number, message)
    if not lines[function.lineno - 1].startswith("def "):
        raise Violation(function, f"the jit function {function.name} must begin with def and one space")
    for decorator in function.decorator_list:
        if not lines[decorator.lineno - 1].startswith("@"):
            raise Violation(decorator, f"a decorator of {function.name} must follow its @ on the same line")


def _at(source: str, position: int, message: str) -> Violation:
    return _line(source.count("\n", 0, position) + 1, message)


def _line(number: int, message: str) -> Violation:
    violation = Violation(None, message)
    violation.line = number
    return violation
