"""What a user sees of the public classes: the names that completion shows, and signatures."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stf

CONTEXT = """
    arrays calibrate cancel capsule check_errors check_state checkpoint copy cuda_kernel devices dot dot_section event
    explain
    fence fill finalize freeze
    graph_scope host_launch if_ launch launch_kernel logical_data logical_data_empty logical_data_full logical_data_ones
    logical_data_zeros logical_token map name parallel_for prefetch random repeat report restore statistics submit submit_task
    synchronize task task_fence task_graph token trace wait wait_async while_loop why
"""
DATA = """
    accept accumulate assign context dtype empty_like history is_token last_writer name nbytes ndim numpy read readonly
    ready reduce relaxed release rw set_symbol set_write_back shape size strides symbol tiles write write_back
"""
GRAPH = "close exec_handle explain handle launch launches name nodes param stream"
TASK = """
    add_dep add_deps add_done_callback args_cai arrays call_site cancel cancelled cupy device done end exception
    exec_place get get_arg get_arg_cai get_graph get_stream graph id label numba numpy on place place_name record_event result
    running set_exec_place set_symbol start stream stream_ptr stream_ptrs streams symbol torch values
"""


@pytest.fixture
def ctx() -> Iterator[stf.Context]:
    with stf.context(devices="cpu") as context:
        yield context


def test_completion_shows_public_names_alone(ctx: stf.Context) -> None:
    x = ctx.logical_data(np.zeros(3))
    task = ctx.task(x.rw())
    assert dir(ctx) == sorted(CONTEXT.split())
    assert dir(x) == sorted(DATA.split())
    assert dir(task) == sorted(TASK.split())
    assert dir(ctx.task_graph()) == GRAPH.split()
    assert dir(stf.Resources()) == ["close", "statistics"]
    assert dir(stf) == sorted(stf.__all__)
    with task:
        pass


MACHINERY = {  # of the engine and of the drivers, in classes that users see
    "Context": {"attach", "codes", "default_code", "engine", "make_host_task", "make_task_at", "on_cuda", "registry"},
    "LogicalData": {"core", "place_code"},
    "CompositeData": {"expand_mode", "names_of_parts"},
    "Condition": {"leaves", "planned"},
    "DriverError": {"accuse", "again", "is_reported_by"},
    "ExecPlace": {"affine", "dims", "index"},
    "Grid": {"affine", "dims", "index", "partition", "places"},
    "OutOfMemoryError": {"is_crowded"},
    "Reducer": {"combiner", "fill", "must_suit", "pattern"},
    "Resources": {"driver", "forget_parent", "stop"},
    "TaskGraph": {"launch_rebound"},
}


@pytest.mark.parametrize("name", MACHINERY)
def test_completion_of_a_class_shows_no_machinery(name: str) -> None:
    thing = getattr(stf, name)
    assert any(hasattr(thing, member) for member in MACHINERY[name])  # all, where fields are C's
    assert MACHINERY[name].isdisjoint(dir(thing))
    assert "__init__" in dir(thing)  # what protocols ask for


def test_completion_of_a_class_of_the_users_shows_its_own_names() -> None:
    class Pair(stf.CompositeData):
        def swap(self) -> None:
            """Exchange the parts."""

    assert "swap" in dir(Pair)
    with stf.context(devices="cpu") as ctx:
        assert "swap" in dir(Pair((1, 2), [ctx.logical_data_zeros(3)], tuple, "pair"))


def test_what_completion_shows_is_there(ctx: stf.Context) -> None:
    with ctx.task() as task:
        for thing in (ctx, ctx.logical_data(np.zeros(3)), ctx.task_graph(), stf.Resources(), task):
            assert [name for name in dir(thing) if not hasattr(type(thing), name) and not hasattr(thing, name)] == []


def public_callables() -> Iterator[tuple[str, Any]]:
    for name in stf.__all__:
        thing = getattr(stf, name)
        if inspect.isclass(thing) and not issubclass(thing, (BaseException, int)):
            members = vars(stf.Context) if thing is stf.Context else dir(thing)
            for member in members:
                if not member.startswith("_") and callable(getattr(thing, member)):
                    yield f"{name}.{member}", getattr(thing, member)
        elif callable(thing) and not inspect.isclass(thing):
            yield name, thing


def test_public_callables_have_signatures() -> None:
    for name, thing in public_callables():
        signature = inspect.signature(thing)
        assert all(
            parameter.name != "args" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY)
            for parameter in signature.parameters.values()
        ), name
    assert str(inspect.signature(stf.Context.wait)) == "(context, data, *, data_place=None, arrays=None)"


def test_a_context_is_one_class() -> None:
    """It binds what the modules of its subjects define; what a context has lies in its bases."""
    assert [base.__name__ for base in stf.Context.__mro__] == [
        "Context",
        "Shown",
        "ContextCore",
        "PlacingContext",
        "object",
    ]
