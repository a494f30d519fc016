"""Undeclared accesses: registered arrays that a body reads or writes besides the data of its task.

A variable of the closure, a global variable that the code names, a default or an argument may hold one, or a list,
tuple or dict there. While its data live, its memory belongs to tasks, and the array may show an old content.
"""

from __future__ import annotations

import array
import functools
import itertools
import mmap
import types

import cython

from stf.errors import AccessError, PlaceError
from stf.interop.arrays import describe_by_protocol, describe_scalar, describers, refuse_sequence

LOOKED_AT = 64  # of the items of a container, and a quarter of that in one in it
DEPTH = 3  # of containers in containers, and of functions that call functions
KNOWN: dict = describers
BUFFERS = (array.array, bytearray, memoryview, mmap.mmap)  # others might be asked for their stream
HARMLESS = (describe_scalar, refuse_sequence)


def refuse_undeclared(fn, task, depth=DEPTH):
    """Raise AccessError for registered arrays that a body holds, or a function of its own that it calls."""
    if type(fn) is not types.FunctionType:
        refuse_bound(fn, task, depth)
        return 0
    known: Names = names_in(fn.__code__)
    around = fn.__globals__
    closure = fn.__closure__
    if closure is not None:
        wrapped = fn.__dict__.get("__wrapped__")
        for name, cell in zip(fn.__code__.co_freevars, closure, strict=True):
            try:
                content = cell.cell_contents
            except ValueError:
                continue
            if type(content) is types.FunctionType:
                if depth > 0 and content is not fn and (content is wrapped or content.__globals__ is around):
                    refuse_undeclared(content, task, depth - 1)
            elif may_hold(content) and name in known.looked_into:
                refuse_arrays(content, name, task, known.keys.get(name))
    for name in known.looked_at:
        if cython.compiled:
            found = PyDict_GetItemWithError(around, name)
            if found == cython.NULL:
                continue
            content = cython.cast(object, found)
        else:
            content = around.get(name)
        if may_hold(content):
            refuse_arrays(content, name, task, known.keys.get(name))
    if depth > 0:
        for name in known.called:
            content = around.get(name)
            if type(content) is types.FunctionType and content is not fn and content.__globals__ is around:
                refuse_undeclared(content, task, depth - 1)
    if fn.__defaults__ is not None or fn.__kwdefaults__ is not None:
        refuse_in(fn.__defaults__ or (), "a default", task)
        refuse_in((fn.__kwdefaults__ or {}).values(), "a default", task)
    return 0


def refuse_in(contents, name, task):
    """Raise AccessError for registered arrays among what a function holds."""
    for content in contents:
        if may_hold(content):
            refuse_arrays(content, name, task)
    return 0


def may_reach_arrays(fn):
    """Return whether a function without a closure has defaults, looks into global variables, or calls some."""
    known: Names = names_in(fn.__code__)
    return bool(known.looked_at or known.called or fn.__defaults__ or fn.__kwdefaults__)


def refuse_bound(fn, task, depth):
    """The same for a method, or a partial function with its arguments."""
    if type(fn) is types.MethodType:
        refuse_undeclared(fn.__func__, task, depth)
    elif type(fn) is functools.partial:
        refuse_in((*fn.args, *fn.keywords.values()), "an argument of functools.partial", task)
        refuse_undeclared(fn.func, task, depth)
    return 0


def may_hold(value):
    """Return whether a value is of a type whose objects may be registered, or a container."""
    kind = type(value)
    if kind is types.FunctionType or kind is types.ModuleType or kind is float or kind is int or value is None:
        return False
    return kind in KNOWN or kind is list or kind is tuple or kind is dict


def refuse_arrays(value, name, task, keys=None, depth=DEPTH):
    """Raise AccessError if a value, or one in a list, tuple or dict, is a registered array.

    Of a dict only the items with these `keys`, if any, are used.
    """
    kind = type(value)
    if kind is not list and kind is not tuple and kind is not dict:
        refuse_array(value, name, task)
        return 0
    if kind is dict:
        items = list(value.values()) if keys is None else [value.get(key) for key in keys]
    else:
        items = value
    for item in itertools.islice(items, LOOKED_AT >> 2 * (DEPTH - depth)):
        if not may_hold(item):
            continue
        inner = type(item)
        if inner is not list and inner is not tuple and inner is not dict:
            refuse_array(item, f"{name}, which contains it", task)
        elif depth > 0:
            refuse_arrays(item, name, task, None, depth - 1)
    return 0


def refuse_array(value, name, task):
    """Raise AccessError if a value is a registered array, or shares memory with one."""
    describer = KNOWN.get(type(value))
    if describer in HARMLESS or (describer is describe_by_protocol and type(value) not in BUFFERS):
        return 0
    context = task.context
    try:
        entry = context.registry.holder_of(value, context.on_cuda)
    except (TypeError, ValueError, PlaceError, BufferError):  # no array that could have been registered
        return 0
    if entry is not None:
        raise AccessError(
            f"task {task.label()} ({task.call_site}) uses the array of {entry.describe()}, through {name}; pass the "
            "data to the task, and use the parameter that stands for them"
        )
    return 0
