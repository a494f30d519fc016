"""Bodies written in C++: the text of a lambda, which is carried as a function that takes as many arguments."""

from __future__ import annotations

import functools
import re
import types

__all__ = ["cpp_text", "function_of_lambda"]

NAME = "<C++ lambda>"  # of the code, which no function of Python's has
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
HEAD = re.compile(r"\s*\[([^\]]*)\]\s*(?:__\w+__\s*)*\(")
OF_NVCC = re.compile(r"__(?:host|device)__")  # which NVRTC takes for no lambda, and which this one is anyway
PAIRS = {")": "(", "]": "[", "}": "{", ">": "<"}


@functools.lru_cache(maxsize=1024)
def function_of_lambda(text: str) -> types.FunctionType:
    """Return a function that stands for a lambda: with as many parameters, and the lambda's text as its documentation.

    Parameters
    ----------
    text : str
        Such as ``"[](size_t i, auto x, double a) { x(i) *= a; }"``.

    Raises
    ------
    TypeError
        It is no lambda, or captures variables: a text has none around it.
    """
    plain = COMMENT.sub(" ", text)
    head = HEAD.match(plain)
    if head is None:
        raise TypeError(f"a body in C++ is a lambda, such as [](size_t i, auto x) {{ x(i) = 0; }}, got {text!r}")
    if head[1].strip() not in ("", "=", "&"):
        raise TypeError(f"a body in C++ has no variables around it to capture, got [{head[1]}]; pass numbers by args=")
    parameters = ", ".join(f"p{i}" for i in range(count_of(plain[head.end() :], text)))
    namespace: dict[str, types.FunctionType] = {}
    given = OF_NVCC.sub(lambda found: " " * len(found[0]), text)
    exec(f"def stand_in({parameters}): {given!r}", namespace)
    return types.FunctionType(namespace["stand_in"].__code__.replace(co_name=NAME), {}, "<lambda>")


def count_of(rest: str, text: str) -> int:
    """Return how many parameters there are up to the parenthesis that ends them."""
    opened: list[str] = []
    commas = 0
    for at, char in enumerate(rest):
        if char in "([{<":
            opened.append(char)
        elif char == ")" and not opened:
            return commas + 1 if rest[:at].strip() else 0
        elif char in PAIRS and opened and opened[-1] == PAIRS[char]:
            opened.pop()
        elif char == "," and not opened:
            commas += 1
    raise TypeError(f"the parameters of a body in C++ have no end, got {text!r}")


def cpp_text(fn: types.FunctionType) -> str | None:
    """Return the lambda that a function stands for; None for a function of Python's."""
    return fn.__doc__ if fn.__code__.co_name == NAME else None
