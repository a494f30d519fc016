"""``python -m stf rerun PATH``: run the task of a capsule again, alone."""

from __future__ import annotations

import argparse
import functools
import sys
import time
import traceback
from typing import Any

import numpy as np

from stf import config
from stf.contexts.context import Context, context
from stf.errors import Error, TaskFailedError
from stf.kernels.builders import make_builder
from stf.kernels.elements import Elements
from stf.kernels.launch import THREADS
from stf.tasks import capsule_files
from stf.tasks.capsule_files import Content

__all__ = ["add_options", "rerun", "run"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--devices", help="where it runs, such as cpu or cuda:0; by default as STF_DEVICES says")
    parser.add_argument("--times", type=int, default=1, help="run it so often, each time with the inputs as saved")
    parser.add_argument("--pdb", action="store_true", help="stop in the debugger where the body begins")
    parser.add_argument("--save", metavar="FILE.npz", help="write what the task wrote, by the names of its data")
    parser.add_argument("path", help="a file of ctx.capsule, or in the folder STF_CAPSULE")


def run(options: argparse.Namespace) -> int:
    """Run the task of a capsule; return the exit status: 1 if the task fails, 2 if it cannot be run."""
    try:
        for _ in range(max(options.times, 1)):
            start = time.perf_counter()
            written = rerun(options.path, options.devices, options.pdb)
            print(f"ran in {time.perf_counter() - start:.6f} s, with the copies of its data")
    except TaskFailedError as error:
        cause = error.__cause__ or error
        traceback.print_exception(cause)
        return 1
    except (Error, OSError, ValueError, TypeError) as error:
        print(f"python -m stf rerun: error: {error}", file=sys.stderr)
        return 2
    for name, array in written.items():
        print(f"wrote {name}: {array.dtype}, shape {array.shape}, {summary(array)}")
    if options.save:
        np.savez(options.save, **written)
    return 0


def summary(array: Any) -> str:
    """Return the range of an array, and how many of its values are not finite."""
    if array.size == 0 or array.dtype.kind not in "biuf":
        return "no range"
    values = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    span = f"from {values.min()} to {values.max()}" if values.size else "no value is finite"
    return span if values.size == array.size else f"{span}, {array.size - values.size} values are not finite"


def rerun(path: Any, devices: Any = None, debugs: bool = False) -> dict[str, Any]:
    """Run the task of a capsule in a context of its own; return the content of the data that it may write, by name.

    Raises
    ------
    ValueError
        It is no capsule, or one that this version cannot read.
    TaskFailedError
        The task fails.
    """
    handles: list[Any] = []
    config.capsule = None  # what fails is saved already
    with context(devices=devices, name="rerun") as ctx:
        index, pieces = capsule_files.read(path, functools.partial(data_of, ctx, handles))
        print(f"task {index['task']} ({index['line']}), which ran at {index['place']}")
        place = "host" if index["on_host"] else None
        submit = {"function": submit_function, "parallel_for": submit_kernel, "launch": submit_kernel}
        try:
            made = submit.get(index["kind"], submit_body)(ctx, index, pieces, place, debugs)
            ctx.check_errors()
            ctx.synchronize()
            del handles[len(handles) - index["results"] :]  # the call makes these
            modes = index["modes"][: len(handles)]
            written = [one for one, mode in zip(handles, modes, strict=True) if mode != 1 and not one.core.token]
            found = {}
            for number, handle in enumerate([*written, *made]):
                found[handle.core.name or f"written {number}"] = np.array(handle.numpy())
            return found
        except TaskFailedError:
            for handle in handles:
                if not handle.core.token:
                    handle.accept()
            raise


def data_of(ctx: Context, handles: list[Any], _number: int, content: Content) -> Any:
    """Return logical data with what a capsule holds."""
    if content.token:
        handles.append(ctx.token(name=content.name))
    elif content.array is not None:
        handles.append(ctx.logical_data(content.array, name=content.name))
    else:
        room = np.zeros(content.shape, content.dtype, "F" if content.order == "F" else "C")
        handles.append(ctx.logical_data(room, name=content.name))
    return handles[-1]


def submit_function(ctx: Context, index: dict[str, Any], pieces: dict[str, Any], place: Any, debugs: bool) -> list[Any]:
    """Call a task function; return the data that it makes."""
    function = pieces.pop("function")
    args, kwargs = [], {}
    for kind, name, value in pieces.values():
        if kind == "*":
            args.extend(value)
        elif kind == "**":
            kwargs.update(value)
        elif kind == "keyword":
            kwargs[name] = value
        else:
            args.append(value)
    if debugs:
        kind, (fn, *others) = function.made_of()
        function = kind(debugged(fn), *others)
    function = function.on(place) if place is not None else function
    result = function.call(ctx, ctx.make_task_at((), None), args, kwargs)
    made = list(result.values()) if isinstance(result, dict) else result
    return [one for one in (made if isinstance(made, tuple | list) else [made]) if hasattr(one, "core")]


def submit_body(ctx: Context, index: dict[str, Any], pieces: dict[str, Any], place: Any, debugs: bool) -> list[Any]:
    """Submit a body on accesses."""
    fn = debugged(pieces["body"]) if debugs else pieces["body"]
    if index["kind"] == "host_launch":
        ctx.host_launch(*pieces["accesses"], fn=fn, args=pieces["args"], name=index["name"])
        return []
    if pieces["args"]:
        fn = functools.partial(with_extra, fn, tuple(pieces["args"]))
    ctx.task(*([place] if place is not None else []), *pieces["accesses"], name=index["name"])(fn)
    return []


def with_extra(fn: Any, extra: tuple[Any, ...], *arrays: Any) -> Any:
    """Call a body with its further arguments."""
    return fn(*arrays, *extra)


def submit_kernel(ctx: Context, index: dict[str, Any], pieces: dict[str, Any], place: Any, debugs: bool) -> list[Any]:
    """Submit the body of a kernel."""
    if debugs:
        raise ValueError("--pdb is for bodies that Python runs, and a kernel is compiled; use cuda-gdb, or print in it")
    construct = Elements() if index["kind"] == "parallel_for" else THREADS
    builder = make_builder(ctx, construct, pieces["over"], tuple(pieces["accesses"]), pieces["args"], index["name"])
    (builder if place is None else builder.on(place))(pieces["body"])
    return []


def debugged(fn: Any) -> Any:
    """Return a function that stops in the debugger where its body begins."""
    import pdb

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return pdb.Pdb(nosigint=True).runcall(fn, *args, **kwargs)

    return wrapper
