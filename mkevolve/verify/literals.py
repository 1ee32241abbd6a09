"""Expressions that may be evaluated when a candidate is imported: literals and types."""

import ast
import re

from mkevolve.verify.source import Source, is_dtype, words

_TYPE_TEXT = re.compile(r"[\w.*\[\], |]{0,60}")
_TYPES = words(
    """
    torch.Tensor torch.Size torch.dtype triton.language.constexpr triton.language.tensor
    triton.language.const triton.language.dtype
    """
)


def is_literal(node: ast.expr, found: Source) -> bool:
    """Tell whether an expression is a number, a text, a dtype or a tuple of them, perhaps computed."""
    match node:
        case ast.Constant(value):
            return value is not Ellipsis
        case ast.Tuple(elts):
            return all(is_literal(e, found) for e in elts)
        case ast.UnaryOp(operand=operand):
            return is_literal(operand, found)
        case ast.BinOp(left=left, op=op, right=right):
            return _is_small(op, right) and is_literal(left, found) and is_literal(right, found)
        case ast.Name(name):
            return found.constant(name)
        case ast.Call(func=func, args=[argument], keywords=[]):
            return found.dotted(func) == "triton.language.constexpr" and is_literal(argument, found)
        case ast.Attribute():
            dotted = found.dotted(node)
            return dotted is not None and (
                is_dtype(dotted) or dotted in ("math.pi", "math.e", "math.inf", "math.nan")
            )
    return False


def is_type(node: ast.expr, found: Source) -> bool:
    """Tell whether an annotation names a type, so that evaluating it does nothing."""
    match node:
        case ast.Constant(value):
            return value is None or (isinstance(value, str) and bool(_TYPE_TEXT.fullmatch(value)))
        case ast.Name(name) if name in ("int", "float", "bool", "str", "tuple", "list", "dict"):
            return name not in found.imports
        case ast.Subscript(value=value, slice=inner):
            return is_type(value, found) and is_type(inner, found)
        case ast.Tuple(elts):
            return all(_is_ellipsis(e) or is_type(e, found) for e in elts)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return is_type(left, found) and is_type(right, found)
        case ast.Name() | ast.Attribute():
            dotted = found.dotted(node)
            return dotted is not None and (
                dotted in _TYPES or is_dtype(dotted) or dotted.startswith("typing.")
            )
    return False


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _is_small(op: ast.operator, right: ast.expr) -> bool:
    """A power or a shift can take forever; by a small literal it cannot."""
    if isinstance(op, ast.Pow | ast.LShift):
        return isinstance(right, ast.Constant) and isinstance(right.value, int) and right.value <= 64
    return not isinstance(op, ast.MatMult)
