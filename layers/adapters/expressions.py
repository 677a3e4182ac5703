"""Options of a library's constructor, as texts over the sizes of an event: features=D, M=eye(C)."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from layers.base import UnsupportedShape

SIZES = ("D", "C", "H", "W", "L")
TENSORS: dict[str, Callable[..., torch.Tensor]] = {
    "eye": torch.eye,
    "randn": torch.randn,
    "zeros": torch.zeros,
    "ones": torch.ones,
    "randperm": torch.randperm,
}
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
RULE = (
    f"use numbers, the event's sizes {', '.join(SIZES)}, the operators + - * // and the tensors "
    f"{', '.join(f'{name}(...)' for name in TENSORS)}"
)


class _Unknown(Exception):
    """A part of an expression that is not allowed in one."""


def expression_fault(value: Any) -> str | None:
    """Return the problem with an option's value if it is, or contains, a malformed expression, else None."""
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(expression_fault, value)), None)
    tree = _expression(value)
    if tree is None:
        garbled = isinstance(value, str) and any(f"{name}(" in value for name in TENSORS)
        return f"{value!r} is not an expression; {RULE}" if garbled else None
    try:
        _compiled(tree)
    except _Unknown as unknown:
        return f"{value!r}: {str(unknown)!r} is unknown; {RULE}"
    return None


def evaluate(option: str, value: Any, shape: tuple[int, ...]) -> Any:
    """Return the value of an option for an event shape; one that is no expression is returned unchanged.

    Expressions are texts such as "D", "4 * C", "(C, H, W)" or "eye(D) + 0.1 * randn(D, D)", also within lists. A word
    that is no size, such as "shuffle", is a text for the constructor.

    Raises:
        UnsupportedShape: the event has no such axis.
        ValueError: the expression holds an unknown name or cannot be evaluated.
    """
    if isinstance(value, (list, tuple)):
        return tuple(evaluate(option, part, shape) for part in value)
    fault, tree = expression_fault(value), _expression(value)
    if fault is not None:
        raise ValueError(f"{option}: {fault}")
    if tree is None:
        return value
    sizes = {"D": math.prod(shape), "C": shape[0]}
    sizes |= {"H": shape[1], "W": shape[2]} if len(shape) == 3 else {"L": shape[1]}
    lacking = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in SIZES]
    lacking = [name for name in lacking if name not in sizes]
    if lacking:
        kind = "images (channels, height, width)" if lacking[0] in "HW" else "sequences (channels, length)"
        raise UnsupportedShape(
            f"{option} = {value!r}: events {shape} have no {lacking[0]}; use {kind}, or the sizes {', '.join(sizes)}"
        )
    try:
        return _compiled(tree)(sizes)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{option} = {value!r} cannot be evaluated for events {shape}: {error}; {RULE}") from error


def _expression(value: Any) -> ast.expr | None:
    """Return the syntax tree of a text that is an expression: one that mentions a size, a number or a tensor."""
    if not isinstance(value, str):
        return None
    try:
        tree = ast.parse(value.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if isinstance(tree, ast.Name):
        return tree if tree.id in SIZES else None
    if not isinstance(tree, (ast.BinOp, ast.UnaryOp, ast.Call, ast.Tuple, ast.List)):
        return None
    nodes = list(ast.walk(tree))
    named = any(isinstance(node, ast.Name) and node.id in (*SIZES, *TENSORS) for node in nodes)
    return tree if named or any(isinstance(node, ast.Constant) for node in nodes) else None


def _compiled(tree: ast.expr) -> Callable[[Mapping[str, int]], Any]:
    """Return the value of an expression as a function of the sizes; raise _Unknown with a part that is not allowed."""
    operate: Callable[..., Any]
    match tree:
        case ast.Constant(value=int() | float() as value):
            return lambda sizes: value
        case ast.Name(id=name) if name in SIZES:
            return lambda sizes: sizes[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            operate, terms = OPERATORS[type(op)], [_compiled(left), _compiled(right)]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            operate, terms = operator.neg, [_compiled(operand)]
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in TENSORS:
            operate, terms = TENSORS[name], [_compiled(part) for part in parts]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            operate, terms = lambda *values: values, [_compiled(part) for part in parts]
        case _:
            raise _Unknown(ast.unparse(tree))
    return lambda sizes: operate(*(term(sizes) for term in terms))
