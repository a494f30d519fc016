"""Checkpoints: the content of data at one point of the program, on the disk, and back.

A checkpoint is tasks on the host like others, so it is the same on all devices, and waits for no more than its data::

    each data    x.read() ──▶ copy ──token──▶ write x.npy ──token──┐
                                                                   ├──▶ write the index
    each data    y.read() ──▶ copy ──token──▶ write y.npy ──token──┘

Only the copies read the data: tasks that write x wait for the copy of x, and not for the disk. A token carries the
order, and the poison: if a copy is skipped, since what it reads is poisoned, the index is not written, and the
checkpoint of before stays. All copies are submitted before the first file is written, so data that are refused leave
no file.

Tried instead: `freeze`, with a thread that writes. It blocks writers of the thread that froze the data, and needs
its own word for failures.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from stf._engine import outcomes
from stf._support.arguments import name_of, truth
from stf._support.completion import Shown
from stf.data.composite import CompositeData
from stf.data.logical_data import LogicalData, know_layout
from stf.errors import CaptureError
from stf.tasks import handles
from stf.tasks.checks import must_be_outside, must_be_settled
from stf.tasks.host_task import host_launch
from stf.tasks.task import Task

__all__ = ["Checkpoint", "checkpoint", "restore"]

WHOLE = 0  # of relations between data: the others are parts, or forms of these
lock = threading.Lock()
being_written: dict[str, Checkpoint] = {}  # by folder


class Checkpoint(Shown):
    """A checkpoint that is being written, or is written. Made by `Context.checkpoint`.

    Attributes
    ----------
    path : str
        Its folder.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "state")
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data_ones(3, name="x")
    ...     saved = ctx.checkpoint(path, wait=False)
    ...     ctx.fill(x, 2.0)  # waits for the copy, and not for the disk
    ...     saved.result()
    ...     print(saved.done(), saved.path == path)
    True True
    """

    _shown = ("done", "path", "result")

    def __init__(self, path: str, names: list[str]) -> None:
        self.path = path
        self.names = names
        self.copies: list[Task] = []
        self.last: Any = None  # the task that writes the index

    def done(self) -> bool:
        """Return whether it is written, or has failed.

        Examples
        --------
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "state")
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_ones(3, name="x")
        ...     print(ctx.checkpoint(path).done())
        True
        """
        return handles.is_done(self.last)

    def result(self, timeout: float | None = None) -> None:
        """Wait until it is on the disk.

        Parameters
        ----------
        timeout : float, optional
            Seconds.

        Raises
        ------
        TaskFailedError
            It is not written: a task failed that was to write its data, or the disk refused. The checkpoint that was
            in the folder before is as it was.
        TimeoutError
            It took longer; nothing is lost.
        TaskStateError
            It is called inside a task.

        Examples
        --------
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "state")
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_ones(3, name="x")
        ...     ctx.checkpoint(path, wait=False).result()
        """
        handles.wait(self.last, timeout, "result")
        for name, task in zip(self.names, self.copies, strict=True):
            failure = handles.failure_of(task)
            if failure is not None and not failure.is_own(task):  # else it was cancelled, and so is the last one
                outcomes.take_failure(task.engine, failure)
                raise failure.error_of_reader(f"checkpoint of {self.path}", f"logical data '{name}'")
        handles.result(self.last, None)

    def __repr__(self) -> str:
        return f"<stf.Checkpoint {self.path!r}, {'done' if self.done() else 'being written'}>"


def checkpoint(context: Any, path: Any, data: Any = None, extra: Any = None, wait: bool = True) -> Checkpoint:
    """Write the content of data to the disk, as the tasks submitted so far leave it.

    Each data is copied on the host when these tasks have written it. Tasks that read it go on, and tasks that write it
    wait for its copy only. The files are written meanwhile. The checkpoint is there as a whole or not at all: who
    stops the program keeps the one that was in the folder before.

    Parameters
    ----------
    path : str or Path
        Its folder, which is made if it is not there. One program at a time writes to it.
    data : dict, sequence of LogicalData or LogicalData, optional
        The data, by name; without a dict, each has a name of its own. By default all data of the context with names,
        without tokens.
    extra : optional
        What the program needs beside data, such as ``{"step": 42, "noise": rng.state}``: None, bool, int, float, str,
        lists and dicts of these.
    wait : bool, optional
        Return when it is on the disk. If False, ask the handle.

    Returns
    -------
    Checkpoint
        Its `Checkpoint.result` waits, and raises what went wrong.

    Raises
    ------
    TypeError
        Something is no logical data, a token, or data made of several arrays; or `extra` has a value that JSON would
        change.
    ValueError
        Data have no name, or two have the same; or there are no data.
    NotADirectoryError
        `path` is a file.
    TaskFailedError
        Data are poisoned, or the disk refused.
    UninitializedDataError
        Nobody has written data.
    AccessError
        Data are split into tiles or released.
    TaskStateError
        It is called inside a task or a recording.
    CaptureError
        The tasks of the context become a CUDA graph of yours.
    ContextMismatchError
        Data belong to another context.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "state")
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data_full(3, 7.0, name="x")
    ...     _ = ctx.checkpoint(path, extra={"step": 42})
    >>> with stf.context(devices="cpu") as ctx:
    ...     data, extra = ctx.restore(path)
    ...     print(data["x"].numpy(), extra)
    [7. 7. 7.] {'step': 42}
    """
    from stf.data import checkpoint_files as files  # which imports much, for few

    must_be_outside(context, "checkpoint")
    must_run_now(context, "checkpoint")
    truth("wait", wait)
    chosen = with_names(context) if data is None else by_name(context, data, "checkpoint")
    if not chosen:
        raise ValueError(f"ctx.checkpoint found no data with a name in {context!r}; pass data={{'x': lX}}")
    for name, one in chosen.items():
        files.check_dtype(name, one.dtype)
    text = files.json_of(extra)
    folder = os.fspath(path)
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise NotADirectoryError(f"{folder} is a file, and a checkpoint is a folder; pass another path")
    await_writers(folder)
    made = Checkpoint(folder, list(chosen))
    writer = files.Writer(folder, made.names, text)
    tokens = [context.token() for _ in chosen]
    for one, token, content in zip(chosen.values(), tokens, writer.contents, strict=True):
        task = submit(context, copy_content, (content,), one.read(), token.write())
        made.copies.append(task)
    for token, content in zip(tokens, writer.contents, strict=True):
        submit(context, writer.save, (content,), token.rw())
    made.last = submit(context, writer.commit, (), *[token.read() for token in tokens])
    with lock:
        being_written[os.path.realpath(folder)] = made
    context.submit()
    if wait:
        made.result()
    return made


def restore(context: Any, path: Any, latest: bool = False, data: Any = None) -> tuple[dict[str, Any], Any]:
    """Read a checkpoint: into new data, or into yours.

    Nothing is written to data before all that is read was found whole: each file is compared with its crc32.

    Parameters
    ----------
    path : str or Path
        The folder that `Context.checkpoint` was given.
    latest : bool, optional
        Take the newest of the checkpoints in the folders of `path`.
    data : dict, sequence of LogicalData or LogicalData, optional
        Data to restore into, by name, with the shapes and dtypes of before. Arrays of yours that they were registered
        from are refreshed as usual. What else the checkpoint has is left out. Poisoned data are good again.

    Returns
    -------
    data : dict
        The data by name: those that were passed, else new data of all that the checkpoint has.
    extra
        As it was passed to `Context.checkpoint`.

    Raises
    ------
    FileNotFoundError
        There is no checkpoint.
    ValueError
        A file is damaged; or data have another shape or dtype, no name, the name of another one, or one that the
        checkpoint lacks.
    TypeError
        Something is no logical data, a token, or data made of several arrays.
    AccessError
        Data are read-only, frozen, split into tiles or released.
    TaskStateError
        It is called inside a task or a recording.
    CaptureError
        The tasks of the context become a CUDA graph of yours.
    ContextMismatchError
        Data belong to another context.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> import os, tempfile
    >>> folder, X = tempfile.mkdtemp(), np.zeros(3)
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data(X, name="x")
    ...     for step in range(3):
    ...         ctx.fill(x, float(step))
    ...         _ = ctx.checkpoint(os.path.join(folder, f"{step:04}"), extra=step)
    ...     ctx.fill(x, 100.0)
    ...     _, step = ctx.restore(folder, latest=True, data=x)
    >>> print(X, step)
    [2. 2. 2.] 2
    """
    from stf.data import checkpoint_files as files  # which imports much, for few

    must_be_outside(context, "restore")
    must_run_now(context, "restore")
    folder = os.fspath(path)
    targets = None if data is None else by_name(context, data, "restore")
    await_writers(folder, truth("latest", latest))
    if latest:
        folder = files.newest_in(folder)
    index = files.read_index(folder)
    entries = {entry["name"]: entry for entry in index["data"]}
    if targets is None:
        arrays = files.read_arrays(folder, list(entries.values()))
        made = {
            name: context.logical_data(array, name=name, write_back=False)
            for name, array in zip(entries, arrays, strict=True)
        }
        return made, index["extra"]
    missing = [name for name in targets if name not in entries]
    if missing:
        raise ValueError(f"{folder} has no data {missing}, but {sorted(entries)}; leave these out, or rename them")
    if len({one.core.id for one in targets.values()}) < len(targets):
        raise ValueError(f"ctx.restore got the same data under several of the names {list(targets)}; pass it once")
    accesses = [one.write() for one in targets.values()]
    arrays = files.read_arrays(folder, [entries[name] for name in targets])
    for (name, one), array in zip(targets.items(), arrays, strict=True):
        if array.shape != one.shape or array.dtype != one.dtype:
            raise ValueError(
                f"'{name}' of {folder} is {array.dtype} of shape {array.shape}, and {one!r} is to hold it, {one.dtype} "
                f"of shape {one.shape}; restore it into new data: leave data out"
            )
    if targets:
        submit(context, put_back, (arrays,), *accesses)
        context.submit()
    return targets, index["extra"]


# -- tasks ---------------------------------------------------------------------------------------------------------


def submit(context: Any, body: Any, args: tuple[Any, ...], *accesses: Any) -> Task:
    return host_launch(context, *accesses, args=args, name="checkpoint")(body)


def copy_content(view: Any, content: Any) -> None:
    """Keep a copy of a data, in the order of its axes."""
    try:
        content.array = np.array(view, order="K")
    except Exception as error:  # the last task raises it, which writes no data: nothing is poisoned by it
        content.error = error


def put_back(*given: Any) -> None:
    """Write arrays to data; the arguments of a task on the host come after its data."""
    *views, arrays = given
    for view, array in zip(views, arrays, strict=True):
        view[...] = array


# -- which data ----------------------------------------------------------------------------------------------------


class Known(LogicalData):
    """A further handle of data that the user holds; it does not give them up."""

    __slots__ = ()

    def __del__(self) -> None:
        """Leave the data to the user's handle."""


def with_names(context: Any) -> dict[str, LogicalData]:
    """Return all data of a context with names; tokens, tiles and parts have no content of their own."""
    engine = context.engine
    gone = {id(one) for one in list(engine.dropped)}
    chosen = [
        Known(core)
        for core in list(engine.coherency.data.values())
        if core.name
        and not (core.token or core.released or core.is_dropped or core.parent is not None)
        and not (core.linked is not None and core.linked.kind != WHOLE)
        and id(core) not in gone
    ]
    return by_name(context, chosen, "checkpoint")


def by_name(context: Any, data: Any, what: str) -> dict[str, LogicalData]:
    """Return data by name, each of which is one array of this context."""
    if isinstance(data, dict):
        pairs = [(name_of(name), one) for name, one in data.items()]
    elif isinstance(data, (list, tuple)):
        pairs = [(getattr(one, "name", None), one) for one in data]
    else:
        pairs = [(getattr(data, "name", None), data)]
    found: dict[str, LogicalData] = {}
    for name, one in pairs:
        if isinstance(one, CompositeData):
            raise TypeError(
                f"ctx.{what} takes data of one array, and {one!r} is made of several; register these arrays instead"
            )
        if not isinstance(one, LogicalData):
            raise TypeError(f"ctx.{what} takes logical data, got {type(one).__name__} {one!r}; register it first")
        must_be_settled(context, one)
        if one.is_token:
            raise TypeError(f"ctx.{what} takes data with content, and {one!r} is a token; leave it out")
        know_layout(one)
        if one.core.layout.interface is not None:
            raise TypeError(
                f"ctx.{what} takes arrays, and {one!r} has an interface of your own; save it in a task on the host"
            )
        if not name:
            raise ValueError(f"ctx.{what} takes data with names, and {one!r} has none; pass a dict: data={{'x': lX}}")
        if name in found:
            raise ValueError(f"ctx.{what} got two data of the name '{name}'; pass a dict with other names")
        found[name] = one
    return found


def must_run_now(context: Any, what: str) -> None:
    """Raise where the tasks of a context become a graph of the caller's, and run in its launches."""
    if context.engine.root.captured:
        raise CaptureError(f"{what} in a context whose tasks become a CUDA graph: none runs before that is launched")


def await_writers(folder: str, around: bool = False) -> None:
    """Wait for checkpoints of this program in a folder, or in the folders of it: they name its files."""
    target = os.path.realpath(folder)
    with lock:
        for known, one in list(being_written.items()):
            if one.done():
                del being_written[known]
        mine = [one for known, one in being_written.items() if (os.path.dirname(known) if around else known) == target]
    for one in mine:
        handles.wait(one.last, None, "a checkpoint in the same folder")
