"""What a task's function brings along besides its arguments: its closure, its globals, and what it asks stf for."""

from __future__ import annotations

import dis
import functools
import types

from stf._engine.access import Access, DataHandle
from stf.errors import AccessError
from stf.interop import adapters
from stf.params import refuse_hidden, refuse_reachable


def injections(fn):
    """Parameters annotated ``stf.Stream`` or ``stf.Task``: (name, kind)."""
    annotations = getattr(fn, "__annotations__", None)
    if not annotations:
        return ()
    kinds = [
        (name, adapters.resolve_annotation(fn, kind) if isinstance(kind, str) else kind)
        for name, kind in annotations.items()
        if name != "return"
    ]
    return tuple((name, kind) for name, kind in kinds if adapters.is_injected(kind))


def snapshot(fn, task):
    """`fn` with its closure as it is now; data among it must be accesses of the task."""
    scope = task.engine.scope
    if scope is not None:
        refuse_params(fn)
        if scope.patient:
            refuse_reachable(fn)
    closure = getattr(fn, "__closure__", None)
    if closure is None:
        return fn
    if type(fn) is types.MethodType:
        return types.MethodType(snapshot(fn.__func__, task), fn.__self__)
    cells = []
    for name, cell in zip(fn.__code__.co_freevars, closure, strict=True):
        try:
            content = cell.cell_contents
        except ValueError:
            cells.append(cell)
            continue
        if is_data(content):
            reject_hidden_data(task, name, content)
        cells.append(types.CellType(content))
    copy = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, tuple(cells))
    copy.__kwdefaults__ = fn.__kwdefaults__
    copy.__annotations__ = fn.__annotations__
    return copy


def refuse_params(fn):
    """Raise for parameters of a graph that a body holds, which would be no numbers when it runs."""
    if type(fn) is functools.partial:
        refuse_hidden(fn.args)
        refuse_hidden(fn.keywords)
        fn = fn.func
    refuse_hidden(getattr(fn, "__defaults__", None) or ())
    refuse_hidden(getattr(fn, "__kwdefaults__", None) or {})
    for cell in getattr(fn, "__closure__", None) or ():
        try:
            refuse_hidden((cell.cell_contents,))
        except ValueError:
            continue
    return 0


def is_data(value):
    """Whether a value is logical data, of one array or of several."""
    return isinstance(value, DataHandle) or hasattr(value, "expand_mode")


def reject_hidden_data(task, name, handle):
    cores = [part.core for part in getattr(handle, "parts", (handle,))]
    for item in task.accesses:
        access: Access = item
        if access.core in cores:
            return
    raise AccessError(f"task {task.label()} uses logical data '{name}' without an access; pass it")


def check_globals(fn):
    """Names of logical data that a body takes from its module: a mistake."""
    for name in fn.__code__.co_names:
        if is_data(fn.__globals__.get(name)) and loads_global(fn, name):
            raise AccessError(f"task '{fn.__name__}' uses logical data '{name}' without an access; pass it")


def loads_global(fn, name):
    """Whether `name` is a variable there, and not just an attribute of the same name."""
    return any(i.argval == name and i.opname in ("LOAD_GLOBAL", "LOAD_NAME") for i in dis.get_instructions(fn))
