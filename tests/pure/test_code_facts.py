"""Steps of code, which are the same in each version of Python, and questions about them."""

from __future__ import annotations

import argparse
import datetime
import decimal
import enum
import fractions
import inspect
import types
from typing import Any

import numpy as np
import pytest

from stf._support.code_facts import Step, codes_in, facts_of
from stf._support.constants import is_constant
from stf.graphs.names_read import Read, reads_of
from stf.kernels.body_checks import changed_for_all, returns_of
from stf.tasks.last_values import augmented_in, called_in
from stf.tasks.lost_results import lost_results_of


def code_of(body: str, arguments: str = "x, y") -> types.CodeType:
    scope: dict[str, Any] = {}
    exec(f"def f({arguments}):\n    " + body.replace("\n", "\n    "), scope)
    code: types.CodeType = scope["f"].__code__
    return code


def text_of(step: Step) -> str:
    """Return an expression as it was written, nearly."""
    step = step.original
    parts = [text_of(part) for part in step.parts]
    if step.does == "join":
        return f"either({', '.join(parts)})"
    if step.does == "call":
        return f"{parts[0]}({', '.join(parts[1:])})"
    if step.of in ("attribute", "item"):
        return f"{parts[0]}.{step.name}" if step.of == "attribute" else f"{parts[0]}[{', '.join(parts[1:])}]"
    if step.does == "compute":
        return f"({step.name.join(parts)})" if len(parts) == 2 else f"{step.of}({parts[0]})"
    return f"{step.of}({', '.join(parts)})" if step.does == "build" else str(step.name)


EXPRESSIONS = {
    "2 * x + y": "((2*x)+y)",
    "g.a.b(x, y.c)": "g.a.b(x, y.c)",
    "x[0][y]": "x[0][y]",
    "-x": "unary(x)",
    "g(x, key=y)": "g(x, y, ('key',))",
    "(x, y, 1)": "tuple(x, y, 1)",
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_the_parts_of_a_value_are_found(text):
    store = next(step for step in facts_of(code_of(f"z = {text}\nreturn z")).steps if step.does == "store")
    found = text_of(store.parts[0]).replace("g(x, y)", "g(x, y, ('key',))")  # where names are no argument
    assert found == EXPRESSIONS[text]


def test_a_value_of_two_ways_is_known_as_that():
    """Some versions of Python write what comes behind it twice."""
    steps = facts_of(code_of("z = g(x, 1 if y else 2)")).steps
    found = {text_of(step.parts[0]) for step in steps if step.does == "store"}
    assert found in ({"g(x, either(2, 1))"}, {"g(x, 1)", "g(x, 2)"})


def test_values_are_followed_through_swaps_and_copies():
    steps = facts_of(code_of("a, b = g(x), y\n(c := x)[0] = a < b < c")).steps
    stored = {(s.name, text_of(s.parts[0])) for s in steps if s.does == "store" and s.of == "local"}
    assert stored == {("a", "g(x)"), ("b", "y"), ("c", "x")}


def test_parameters_are_what_was_given_until_they_are_bound():
    code = code_of("if x:\n    y = 1\nprint(y)\nx = 2\nprint(x)\ntry:\n    x = g()\nexcept E:\n    print(x)")
    given = [step.name in step.given for step in facts_of(code).loads("local")]
    assert given == [True, True, False, False]


def test_every_function_of_a_library_can_be_read():
    for module in (argparse, inspect):
        for code in codes_in(compile(inspect.getsource(module), module.__file__, "exec")):
            facts = facts_of(code)
            known = [step for step in facts.steps if step.does in ("compute", "call") or step.of == "item"]
            assert sum(not part.does for step in known for part in step.parts[:1]) <= len(known) // 100
            assert reads_of(code) is not None and lost_results_of(code) is not None


LOST = {  # parameters that are bound to something else, and that are not used
    "y = 2 * x": ({"y": 2}, set()),
    "y = np.maximum(y, 0) + np.exp(x)": ({"y": 2}, set()),
    "y = g(x, y)": ({}, set()),
    "y[:] = x\ny = 2 * y": ({}, set()),
    "y = y.clip(0, 1 if x else 2)": ({"y": 2}, set()),
    "y = [y for y in x]": ({"y": 2} if "LOAD_FAST_AND_CLEAR" not in __import__("dis").opmap else {}, set()),
    "2 * x": ({}, {"y"}),
    "return 2 * x": ({}, {"y"}),
    "y = 2 * x\nreturn y": ({}, set()),
}


@pytest.mark.parametrize("body", LOST)
def test_results_that_get_lost(body):
    lost = lost_results_of(code_of(body))
    assert (lost.rebound, set(lost.untouched)) == LOST[body] and lost.returns == ("return" in body)


def test_the_last_values_of_parameters():
    assert augmented_in(code_of("y = x\ny += 1\nx += 1\nx = 2")) == ("y",)
    assert called_in(code_of("y = g(y) if x else y")) == {"y"}
    assert called_in(code_of("x, y = g(x, k=1), y")) == {"x"}
    assert called_in(code_of("y[0] = 1\nx = g(x)")) == set()


def test_what_code_reads_by_names():
    code = code_of("import os, a.b as ab\nfrom m import p, q\nz = x.r if y else RATE\nz.s(os.sep, ab.t, p.u, q.v)\nw()")
    assert {read for read in reads_of(code) if read.kind != "any"} == {
        Read("param", "y", ()),
        Read("param", "x", ("r",)),
        Read("global", "RATE", ()),
        Read("global", "w", (), True),
        Read("module", "os", ("sep",)),
        Read("module", "m", ("p", "u")),
        Read("module", "m", ("q", "v")),
    }
    assert {read.attributes for read in reads_of(code) if read.kind == "any"} == {("s",), ("t",)}


def test_what_a_body_returns_and_changes_for_all():
    assert [what for _, *what in returns_of(code_of("if x:\n    return 1, y\nreturn g(x)"))] == [["tuple", 2], ["", 0]]
    body = "y[0] += 1 if x[0] else 2\ny[:] = 3"
    assert list(changed_for_all(code_of(body))) == [("y", 2, False)]  # then comes a branch
    assert list(changed_for_all(code_of("y[0, :] = 1\ny[:, ...] = 2"))) == [("y", 3, True)]


class Level(enum.Enum):
    LOW = 1


NOW = datetime.datetime(2026, 1, 1)
CONSTANTS = [1, True, 2.5, 1j, "a", b"a", np.float32(1), np.datetime64(0, "s"), Level.LOW, fractions.Fraction(1, 2)]
CONSTANTS += [decimal.Decimal(1), np.dtype("f8"), NOW, NOW.date(), NOW - NOW, slice(1), range(3), (1, ("a", NOW))]
CONSTANTS += [frozenset((1, (2, "a")))]
OTHERS = [None, [], {}, set(), (1, []), np.zeros(1), np, text_of, object(), frozenset((object(),)), Level]


@pytest.mark.parametrize("value", [*CONSTANTS, *OTHERS], ids=lambda value: f"{type(value).__name__}")
def test_constants_are_values_that_nobody_can_change(value):
    assert is_constant(value) == any(value is known for known in CONSTANTS)
