"""What opening and ending a context costs: calls of Python functions, and objects, counted and not timed."""

from __future__ import annotations

import collections
import gc
import os
import sys

import pytest

import stf
from stf._engine import engine

FOLDER = os.path.dirname(stf.__file__) + os.sep
MOST_CALLS = 24  # of functions that are not compiled
compiled = not engine.__file__.endswith(".py")


def open_and_end() -> None:
    with stf.context(devices="cpu"):
        pass


@pytest.mark.skipif(not compiled, reason="what is counted is compiled")
def test_a_context_that_does_nothing_calls_few_functions() -> None:
    """What most contexts never need is looked for in compiled code, or made when it is needed."""
    calls: collections.Counter[str] = collections.Counter()

    def count(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(FOLDER):
            calls[frame.f_code.co_qualname] += 1

    open_and_end()
    sys.setprofile(count)
    try:
        open_and_end()
    finally:
        sys.setprofile(None)
    assert sum(calls.values()) <= MOST_CALLS, sorted(calls.items())


def test_a_context_that_has_ended_leaves_nothing() -> None:
    """Neither objects nor work for the garbage collector."""
    for _ in range(3):
        open_and_end()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(8):
            open_and_end()
        assert len(gc.get_objects()) - before < 8
        assert gc.collect() == 0
    finally:
        gc.enable()
