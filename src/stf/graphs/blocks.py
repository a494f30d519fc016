"""Loops and branches: with-blocks that record what is done again and again, or only if a condition holds."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from stf._engine import claims, thread_turns
from stf._engine.access import DataHandle
from stf._port.late_values import Asked
from stf._recording.control_flow import Branch, Repeat, While
from stf._support.arguments import is_integer
from stf.data.assigning import assign
from stf.data.creation import logical_data_empty
from stf.data.filling import fill, prefetch
from stf.data.registry import logical_data
from stf.errors import TaskStateError
from stf.graphs.launchable import submit_routine
from stf.graphs.recorder import RecordingBuilder
from stf.places.places import DataPlace
from stf.places.table import current_place_code
from stf.tasks.checks import must_be_open
from stf.tasks.task import ContextCore
from stf.values.conditions import Condition, is_operand

SPENT: Any = object()  # in the place of a condition that was recorded: it would keep the data that it compares


def recorded_in(engine: Any) -> Any:
    """Return the recording that tasks become a part of which runs again and again, or may not run, or None."""
    return engine.scope if thread_turns.is_repeated(engine) else None


def must_be_condition(condition: Any, who: str) -> Condition:
    """Return a condition, or scalar data of truth values; else TypeError."""
    if isinstance(condition, DataHandle) and is_operand(condition) and condition.core.layout.dtype == np.bool_:
        return Condition(operator.ne, condition, False)
    if not isinstance(condition, Condition):
        hint = "; == and != compare objects: use stf.equal(a, b), ~stf.equal(a, b)"
        raise TypeError(
            f"{who} takes a condition of logical data, such as residual > tol, or a scalar of dtype bool, got "
            f"{condition!r}{hint if isinstance(condition, bool) else ''}"
        )
    return condition


def count_of(count: Any) -> int:
    """Return how often something is done."""
    if not is_integer(count):
        hint = "; a while_loop may compare data with it: ctx.while_loop(n < a)" if isinstance(count, Asked) else ""
        raise TypeError(f"a number of times is an integer, got {count!r}{hint}")
    if int(count) < 0:
        raise ValueError(f"a number of times is not negative, got {count}")
    return int(count)


class Block:
    """A with-block that records its body.

    `_start` is the recording that sets `_counter`, with which a device counts what it does; None elsewhere.
    """

    def __init__(self, context: ContextCore, description: str) -> None:
        self._context = context
        self._recorder = RecordingBuilder(context, description)
        self._before: list[Any] = []  # recordings that were made for it, and are not submitted yet
        self._start: Any = None
        self._counter: Any = None
        self._counted: Any = None  # its home, when the context is finalized

    def _begin(self) -> None:
        must_be_open(self._context)
        self._recorder.open()

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._recorder.discard()
            self._forget()
            raise
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if error is not None:
                self._recorder.discard()
            elif self._recorder.scope is not None:
                self._end()
        finally:
            self._recorder.leave()
            self._forget()

    def _open(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def _forget(self) -> None:
        """Give up what was recorded before the body, if that was not submitted."""
        while self._before:
            self._before.pop().close()

    def _record_start(self, value: int) -> None:
        """Record what sets the counter, where a device can count."""
        context = self._context
        if context.engine.places[max(current_place_code(context), 0)].enqueues:
            self._counted = np.zeros((), np.uint64)
            self._counter = logical_data(context, self._counted, name="iterations")
            self._counter.core.private = True
            self._start = self._record(lambda: fill(context, self._counter, value))

    def _record(self, submit: Callable[[], object]) -> Any:
        """Return the recording of what `submit` submits, which comes before the body."""
        self._begin()
        submit()
        self._before.append(self._recorder.close())
        return self._before[-1]

    @property
    def _count_core(self) -> Any:
        return None if self._counter is None else self._counter.core

    def _finish(self, routine: Any, name: str) -> None:
        """Submit; who runs it holds it then."""
        self._before.clear()  # which the routine holds
        try:
            submit_routine(self._context, routine, name)
        finally:
            routine.close()


class PartBlock(Block):
    """What ``with ctx.graph_scope():`` records inside of what runs again and again: one task of that."""

    def _open(self) -> None:
        self._begin()

    def _end(self) -> None:
        self._finish(self._recorder.close(), "graph")


class RepeatBlock(Block):
    """What ``with ctx.repeat(n):`` records."""

    def __init__(self, context: ContextCore, count: int) -> None:
        super().__init__(context, "repeat")
        self._count = count

    def _open(self) -> None:
        self._record_start(0)
        self._begin()

    def _end(self) -> None:
        body = self._recorder.close(needed={})
        if self._count == 0:  # so that nothing is written
            body.close()
            return
        self._finish(Repeat(body, self._count, self._start, self._count_core), "repeat")


class Tested(Block):
    """A with-block with a condition, which is computed into a flag that the host reads.

    `_test` is the recording that computes the flag; None where the body itself does.
    """

    def __init__(self, context: ContextCore, description: str, condition: Condition | None) -> None:
        super().__init__(context, description)
        self._condition = condition
        self._flag: Any = None
        self._test: Any = None

    def __enter__(self) -> Self:
        if self._condition is SPENT:
            raise TaskStateError(f"the with-block of this {self._recorder.description} was left; make another one")
        return super().__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            if self._condition is not None:
                self._condition = SPENT

    def _enter(self, compute: Callable[[], None] | None) -> None:
        """Record what tests, then the body."""
        if self._flag is None:
            self._flag = logical_data_empty(self._context, (), np.bool_, name="condition")
            self._flag.core.private = True
        if compute is not None:
            self._test = self._record(compute)
        self._begin()

    def _close_body(self) -> Any:
        """Return the recording of the body, after which all is again where it, and the test, need it."""
        needed = {} if self._test is None else {use.data.id: use.entries for use in self._test.uses}
        return self._recorder.close(needed=needed)

    def _compute(self, condition: Condition) -> None:
        """Submit what computes the flag, and brings it to the host."""
        assign(self._context, self._flag, condition)
        self._bring_flag()

    def _bring_flag(self) -> None:
        """Let the host have the flag, if it is there to decide."""
        if not self._context.engine.root.captured:
            prefetch(self._context, self._flag, DataPlace("host"))


class Loop(Tested):
    """What ``with ctx.while_loop(condition) as loop:`` records."""

    def __init__(self, context: ContextCore, condition: Condition | None, limit: int | None) -> None:
        super().__init__(context, "while_loop", condition)
        self._limit = limit
        self._continued = False
        self._iterations: int | None = 0  # None: the device has counted them

    @property
    def iterations(self) -> int:
        """How often the body ran, in the last run that is over.

        Raises
        ------
        TaskStateError
            Tasks are being recorded, which may be those of the loop: nothing of them has run yet.
        """
        description = claims.recorded_description(self._context.engine, threading.get_ident())
        if description is not None:
            raise TaskStateError(
                f"iterations of a while_loop inside of {description}: nothing that is recorded has run yet; read them "
                "before it or after, and use ctx.if_ or ctx.while_loop where the program depends on data"
            )
        if self._iterations is not None:
            return self._iterations
        return int(self._counted if self._context.engine.closed is not None else self._counter)

    def _open(self) -> None:
        self._record_start(0 if self._condition is not None else 1)
        condition = self._condition
        self._continued = False
        self._enter(None if condition is None else lambda: self._compute(condition))

    def continue_while(self, condition: Condition) -> None:
        """Say, once in the body of a loop without a condition, when it goes on.

        Raises
        ------
        TaskStateError
            The loop has a condition, or it was said already, or the loop is over; or it is said in a block inside of
            the body, which may not run.
        """
        scope = self._recorder.scope
        if self._condition is not None or self._continued or scope is None:
            raise TaskStateError("continue_while is called exactly once, in the body of a while_loop without condition")
        if self._context.engine.scope is not scope:
            raise TaskStateError(
                f"continue_while inside of {self._context.engine.scope.description}, which may not run each time; say "
                "it in the body of the while_loop itself, of data that the block inside writes"
            )
        self._compute(must_be_condition(condition, "continue_while"))
        self._continued = True

    def _end(self) -> None:
        if self._condition is None and not self._continued:
            self._recorder.discard()
            raise TaskStateError("a while_loop without condition calls loop.continue_while(condition) in its body")
        body = self._close_body()
        flag, start, counter = self._flag.core, self._start, self._count_core
        self._finish(While(self._test, body, flag, self._limit, self._count, start, counter), "while_loop")

    def _count(self, iterations: int | None) -> None:
        self._iterations = iterations


class BranchBlock(Tested):
    """What ``with ctx.if_(condition) as br:`` records; ``with br.else_():`` may come behind it."""

    def __init__(self, context: ContextCore, condition: Condition) -> None:
        super().__init__(context, "if_", condition)
        self._is_over = False
        self._around: Any = None  # the recording that it is a part of

    def _open(self) -> None:
        self._around = recorded_in(self._context.engine)
        condition = self._condition
        assert condition is not None
        self._enter(lambda: self._compute(condition))

    def _end(self) -> None:
        body = self._close_body()
        self._finish(Branch(self._test, body, self._flag.core, True), "if_")
        self._is_over = True

    def else_(self) -> ElseBlock:
        """Return a with-block whose tasks run if the condition did not hold when the block of ``if_`` was reached.

        Raises
        ------
        TaskStateError
            The block of ``if_`` has not ended yet, or raised, or has an ``else_`` already.
        """
        if not self._is_over or self._around is not recorded_in(self._context.engine):
            raise TaskStateError(
                "else_ comes behind the block of ctx.if_, once, in the same recording, and not if that raised"
            )
        self._is_over = False
        return ElseBlock(self._context, self._flag, self._around)


class ElseBlock(Tested):
    """What ``with br.else_():`` records."""

    def __init__(self, context: ContextCore, flag: Any, around: Any) -> None:
        super().__init__(context, "else_", None)
        self._flag = flag
        self._around = around
        self._is_spent = False

    def _open(self) -> None:
        if self._is_spent or self._around is not recorded_in(self._context.engine):
            raise TaskStateError("the with-block of else_ is entered once, in the same recording as that of ctx.if_")
        self._is_spent = True
        self._enter(self._look_at_flag)

    def _look_at_flag(self) -> None:
        """Let the flag be where it is decided; on a device it is read there by a task that does no more."""
        self._bring_flag()
        if self._context.engine.root.captured:
            with self._context.task(self._flag.read(), name="else_"):
                pass

    def _end(self) -> None:
        body = self._close_body()
        self._finish(Branch(self._test, body, self._flag.core, False), "else_")
