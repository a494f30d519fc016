"""Capsules: a task alone, with its inputs, its arguments and its body, to be run again without the program.

There are two ways to one. ``ctx.capsule(task, path)`` asks for the next task of a function, or of a name: that is saved
when it is submitted, with what its data hold then. With ``STF_CAPSULE=folder`` each task that fails is saved: its
inputs are copied before each body runs, since a body may have changed them when it raises.

The steps::

    submission ──offer──▶ asked for: read the data, write the file     (`Wanted`)
                   │
                   └────▶ STF_CAPSULE: keep what it is made of ──▶ body ──begin──▶ copies ──undo──▶ write the file
                                                                  (`Kept`, one of the checks of `validation`)

What a task is made of is a dict of pieces by name, so that a piece which cannot be saved is named. Tried instead: to
save the body that the engine has. It is a copy of the function by then, with arrays in place of data, and a compiled
loop in place of a kernel.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from stf import config
from stf.errors import AccessError, CaptureError

if TYPE_CHECKING:
    from stf.tasks.capsule_files import Content

__all__ = ["Kept", "capsule", "kept_for", "offer", "refuse"]

log = logging.getLogger("stf")
lock = threading.Lock()
numbers = itertools.count()
saved_lines: set[tuple[str, str]] = set()  # of tasks that failed: name and line
local = threading.local()


class Wanted:
    """A capsule that was asked for.

    Parameters
    ----------
    target : str, or the function of a task
    path : path
    """

    def __init__(self, target: Any, path: Any) -> None:
        self.path = path
        self.name = target if isinstance(target, str) else None
        self.code = None if isinstance(target, str) else code_of(target)

    def is_for(self, task: Any, fn: Any) -> bool:
        """Return whether it is this task that was meant."""
        return task.symbol == self.name if self.code is None else code_of(fn) is self.code


def code_of(fn: Any) -> Any:
    """Return the code of a function or of a task function, by which functions are known that a loop defines anew."""
    fn = getattr(fn, "fn", fn)
    return getattr(fn, "__code__", fn)


def capsule(context: Any, task: Any, path: Any) -> None:
    """Save the next task of a function with its inputs, so that it can be run alone: ``python -m stf rerun PATH``.

    The task is saved when it is submitted, which waits for its inputs. Then it runs as usual.

    Parameters
    ----------
    task : TaskFunction, function or str
        The task function, the body of a kernel, or the name of the task.
    path : str or Path
        The file. It is written whole or not at all.

    Raises
    ------
    TypeError
        `task` is neither a function nor a name. A task that is submitted later raises it for what cannot be saved, and
        names it.
    FileNotFoundError
        There is no such folder.

    Examples
    --------
    >>> import os, tempfile
    >>> @stf.task
    ... def scale(a, x: stf.ReadWrite):
    ...     x *= a
    >>> path = os.path.join(tempfile.mkdtemp(), "scale.stf")
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_ones(3)
    ...     ctx.capsule(scale, path)
    ...     scale(2.0, x)
    >>> os.path.exists(path)
    True
    """
    if not isinstance(task, str) and not callable(getattr(task, "fn", task)):
        raise TypeError(
            f"ctx.capsule takes a task function, the body of a kernel or the name of a task, got {task!r}; ask before "
            "the task is submitted, since it may overwrite its inputs"
        )
    if hasattr(task, "call_site"):  # a handle can be called, too: it takes a body
        raise TypeError(
            f"ctx.capsule takes the function or the name of a task that is still to come, got the handle {task!r}: its "
            "inputs may be overwritten by now"
        )
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"there is no folder {folder} to write {os.path.basename(path)} in; make it first")
    engine = context.engine
    engine.submit_held()  # tasks of calls before this one
    with lock:
        context._capsules = [*(context._capsules or ()), Wanted(task, path)]
    engine.watches = True


def is_asked(context: Any) -> bool:
    """Return whether a capsule is asked for; then no task is held, so that the next call is the next task."""
    return context is not None and bool(context._capsules)


def offer(task: Any, kind: str, pieces: dict[str, Any], fn: Any, results: int = 0) -> None:
    """Take what a task is made of, before it begins, for those who want to save it; its last data are results."""
    mine = taken(task, fn)
    if mine is None and config.capsule is None:
        return
    scope = task.engine.scope
    if scope.records and not (scope.runs_once and mine is not None):  # what is gathered runs when it is read
        if mine is not None:
            raise CaptureError(
                f"task {task.label()} is recorded, and has no inputs yet that {mine.path} could hold; ask for the "
                "capsule of a task outside of graphs and replayed functions"
            )
        return
    recipe = Recipe(task, kind, pieces, results)
    if mine is not None:
        recipe.save(mine.path, [recipe.content_now(number) for number in range(len(recipe.data))])
        log.info("task %s is saved in %s: python -m stf rerun %s", task.label(), mine.path, mine.path)
    if config.capsule is not None:
        local.recipe = recipe


def offer_call(task: Any, function: Any, parameters: list[Any], kinds: Any, given: list[Any], count: int) -> None:
    """As `offer`, for a call of a task function: what it was given, by the names of parameters."""
    pieces = {"function": function}
    for i, (parameter, value) in enumerate(zip(parameters[: len(given)], given, strict=True)):
        if parameter.kind not in ("stream", "task"):
            kind = parameter.kind if kinds is None else kinds[i][1]
            pieces[f"argument {parameter.name}"] = (kind, parameter.name, value)
    offer(task, "function", pieces, function.fn, count - len(given))


def tell_unused(context: Any) -> None:
    """Log which capsules were asked for, and never written, now that the context ends."""
    for one in context._capsules or ():
        what = one.name or getattr(one.code, "co_name", one.code)
        log.warning("no task '%s' was submitted after ctx.capsule asked for it: %s is not written", what, one.path)


def refuse(task: Any, what: str) -> None:
    """Raise TypeError if a capsule was asked for of a task that has no function."""
    mine = taken(task, None)
    if mine is not None:
        raise TypeError(
            f"task {task.label()} is {what}, which no capsule can hold; use a task function, parallel_for or launch"
        )


def taken(task: Any, fn: Any) -> Wanted | None:
    """Return the first capsule that was asked for of such a task, which is nobody else's from now on."""
    context = task.context
    if not is_asked(context):
        return None
    with lock:
        mine = next((one for one in context._capsules if one.is_for(task, fn)), None)
        if mine is not None:
            context._capsules = [one for one in context._capsules if one is not mine]
        return mine


class Recipe:
    """What a task is made of, and of which data.

    `sources` are the accesses of the task by data: the positions of those in `data`.
    """

    def __init__(self, task: Any, kind: str, pieces: dict[str, Any], results: int) -> None:
        self.task, self.kind, self.pieces, self.results = task, kind, pieces, results
        self.accesses = tuple(task.accesses)
        self.data: list[Any] = []
        self.modes: list[int] = []
        self.handles: list[Any] = []
        for access in self.accesses:
            core = access.data.core
            known = next((i for i, one in enumerate(self.data) if one is core), None)
            if known is None:
                self.data.append(core)
                self.handles.append(access.data)
                self.modes.append(access.mode)
            else:
                self.modes[known] |= access.mode

    def content_now(self, number: int) -> Content:
        """Return what is in a data before the task begins; this waits for it."""
        reads = self.modes[number] != 2 and not self.data[number].token
        return self.content(number, self.handles[number].numpy() if reads else None)

    def content(self, number: int, array: Any) -> Content:
        """Return what is known of a data, with its content."""
        from stf.tasks.capsule_files import Content, order_of  # which imports much, for few

        core = self.data[number]
        if core.token:
            return Content(core.name, True)
        if core.layout.interface is not None:
            raise TypeError(
                f"task {self.task.label()} uses {core.describe()}, whose interface is a program's own; no capsule can "
                "hold that"
            )
        layout = core.layout
        if layout.dtype is None:  # what a body has returned, or is to return
            return Content(
                core.name, False, () if array is None else array.shape, getattr(array, "dtype", None), "C", array
            )
        return Content(core.name, False, layout.shape, layout.dtype, order_of(layout), array)

    def save(self, path: Any, contents: list[Content]) -> None:
        """Write the file."""
        from stf.tasks.capsule_files import save  # which imports much, for few

        about = {
            "task": self.task.label(),
            "name": self.task.symbol,
            "line": self.task.call_site,
            "place": self.task.place_name,
            "on_host": self.task.where == 0,
            "kind": self.kind,
            "modes": self.modes,
            "results": self.results,
        }
        save(path, about, self.pieces, self.data, contents)


class Kept:
    """Copies of what a task reads, which become a capsule if the task fails (STF_CAPSULE).

    Parameters
    ----------
    recipe : Recipe
    arrays : list
        For each data the array that the body reads, or None.
    content_of : callable
        What copies such an array to the host.
    """

    def __init__(self, recipe: Recipe, arrays: list[Any], content_of: Any) -> None:
        self.recipe, self.arrays, self.content_of = recipe, arrays, content_of
        self.copies: list[Any] | None = None

    def begin(self) -> None:
        """Copy what the task reads; once."""
        if self.copies is None:
            self.copies = [None if array is None else np.array(self.content_of(array)) for array in self.arrays]
            self.arrays = []

    def start(self) -> None:
        """The task is started by hand, which changes nothing for this."""

    def undo(self) -> None:
        """The body raised: write the capsule of the first such task of each line, and say so in its error."""
        error = sys.exc_info()[1]
        recipe, task = self.recipe, self.recipe.task
        line = (str(task.label()), str(task.call_site))
        with lock:
            if self.copies is None or line in saved_lines:
                return
            saved_lines.add(line)
        path = path_for(task)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            recipe.save(path, [recipe.content(number, array) for number, array in enumerate(self.copies)])
            note = f"the task is saved, to be run alone: python -m stf rerun {path}"
        except Exception as reason:  # the error of the body is what counts
            note = f"the task is not saved in a capsule: {reason}"
        if isinstance(error, BaseException):
            error.add_note(note)
        log.info("task %s: %s", task.label(), note)

    def __call__(self, _task: Any) -> None:
        """Do nothing: the task went well."""


def kept_for(task: Any, array_of: Any, content_of: Any) -> Kept | None:
    """Return what copies the inputs of a task whose body is made now; None for one that nobody offered."""
    recipe = getattr(local, "recipe", None)
    local.recipe = None
    if config.capsule is None or recipe is None or recipe.task is not task:
        return None
    arrays: list[Any] = [None] * len(recipe.data)
    for i, access in enumerate(recipe.accesses):
        replica, number = task.replica_of(i), next(n for n, one in enumerate(recipe.data) if one is access.data.core)
        if replica is not None and recipe.modes[number] != 2 and replica.layout.interface is None:
            arrays[number] = array_of(task, replica, False)
            if arrays[number] is None:
                raise AccessError(
                    f"task {task.label()} reads {access.data.core.describe()} in the memory of another device, where "
                    "STF_CAPSULE cannot copy it; unset it"
                )
    return Kept(recipe, arrays, content_of)


def path_for(task: Any) -> str:
    """Return the file of a task that failed."""
    name = "".join(letter if letter.isalnum() else "_" for letter in task.symbol or "task")
    return os.path.join(config.capsule or "", f"{name}-{os.getpid()}-{next(numbers)}.stf")
