"""Files of single tasks: functions, arguments and arrays in one archive that needs no program to be read again.

Pickle saves functions by name, and the program of that name is just what a capsule has to do without. So functions of
the user's are saved by value: their code, the global variables that they read, and their closure. Functions of
libraries are saved by name. Code is Python's own bytes, which each minor version reads alone; the file says which.

With cloudpickle, classes that a program defines are saved by value, too. Without it these are refused, by name.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import inspect
import io
import json
import marshal
import pickle
import pkgutil
import site
import sys
import sysconfig
import types
import zipfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stf._engine.access import Access, DataHandle
from stf._support.code_facts import codes_in, facts_of
from stf._support.whole_file import whole_file
from stf.interop.dtypes import is_narrow
from stf.tasks.annotations import resolve_annotation
from stf.tasks.new_data import results_of
from stf.tasks.parameters import read_annotation
from stf.values.reducers import Reducer, reducer

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Content", "read", "save"]

FORMAT = 2
PYTHON = sysconfig.get_python_version()
OURS = ("stf", "cloudpickle")  # found by name, wherever they are installed
MISSING: Any = object()


class Content(NamedTuple):
    """What is known of one logical data of a task.

    Attributes
    ----------
    name : str or None
    token : bool
    shape, dtype, order
        Of its array; `order` is ``"C"`` or ``"F"``.
    array : ndarray or None
        What the task reads; None for data that it overwrites.
    """

    name: str | None
    token: bool
    shape: tuple[int, ...] = ()
    dtype: Any = None
    order: str = "C"
    array: Any = None


def save(path: str | Path, about: dict[str, Any], pieces: dict[str, Any], data: list[Any], of: list[Content]) -> None:
    """Write a capsule, whole or not at all.

    Parameters
    ----------
    about : dict
        What can be said in JSON.
    pieces : dict
        What is pickled, each by itself, so that what cannot be is named.
    data : list of Data
        What handles in `pieces` stand for, and `of` for each what is in it.

    Raises
    ------
    TypeError
        Something cannot be saved.
    """
    index = {"format": FORMAT, "python": PYTHON, "stf": stf_version(), "numpy": np.__version__, **about}
    saved = {name: pickled(piece, name, about["task"], data) for name, piece in pieces.items()}
    index["pieces"] = list(saved)
    index["data"] = [described(content) for content in of]
    with whole_file(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("capsule.json", json.dumps(index, indent=1))
        source = source_of(pieces.get("function", pieces.get("body")))
        if source is not None:
            archive.writestr("body.py", source)
        for number, blob in enumerate(saved.values()):
            archive.writestr(f"piece{number}.pickle", blob)
        archive.writestr("dtypes.pickle", pickle.dumps([content.dtype for content in of]))
        for number, content in enumerate(of):
            if content.array is not None:
                archive.writestr(
                    f"array{number}.bin", np.asarray(content.array).tobytes("F" if content.order == "F" else "C")
                )


def read(path: str | Path, handle_of: Callable[[int, Content], Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what `save` was told, with what `handle_of` makes of each data in the place of handles.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        It is no capsule, or one that this version cannot read.
    """
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        raise ValueError(f"{path} is no capsule: ctx.capsule(task, path) writes one") from None
    with archive:
        if "capsule.json" not in archive.namelist():
            raise ValueError(f"{path} is no capsule: ctx.capsule(task, path) writes one")
        index = json.loads(archive.read("capsule.json"))
        must_be_readable(index, path)
        dtypes = pickle.loads(archive.read("dtypes.pickle"))
        handles = []
        for number, (told, dtype) in enumerate(zip(index["data"], dtypes, strict=True)):
            array = None
            if told["saved"]:
                raw = np.frombuffer(bytearray(archive.read(f"array{number}.bin")), dtype)
                array = raw.reshape(told["shape"], order=told["order"])
            shape = tuple(told["shape"])
            handles.append(handle_of(number, Content(told["name"], told["token"], shape, dtype, told["order"], array)))
        pieces = {}
        for number, name in enumerate(index["pieces"]):
            try:
                pieces[name] = Reader(io.BytesIO(archive.read(f"piece{number}.pickle")), handles).load()
            except (ImportError, AttributeError) as error:
                raise ValueError(f"'{name}' of {path} needs what is not here: {error}") from error
    return index, pieces


def must_be_readable(index: dict[str, Any], path: Any) -> None:
    """Raise ValueError for a capsule of another format, or of another Python."""
    if index.get("format") != FORMAT:
        raise ValueError(
            f"{path} was written by stf {index.get('stf')}, in format {index.get('format')}, and this is stf "
            f"{stf_version()}, which reads format {FORMAT}; run it with that version, or save it anew"
        )
    if index["python"] != PYTHON:
        raise ValueError(
            f"{path} was written with Python {index['python']}, whose code Python {PYTHON} cannot read; run "
            "it with that one, or save it anew"
        )


def described(content: Content) -> dict[str, Any]:
    """Return what of a data is said in JSON."""
    told = content._asdict()
    array = told.pop("array")
    return {**told, "dtype": str(content.dtype), "saved": array is not None}


def stf_version() -> str:
    try:
        return importlib.metadata.version("sequential-task-flow")
    except importlib.metadata.PackageNotFoundError:  # the sources, by PYTHONPATH
        return "0+unknown"


def source_of(thing: Any) -> str | None:
    """Return the text of a body, for those who look into the archive."""
    try:
        return inspect.getsource(getattr(thing, "fn", thing))
    except (OSError, TypeError):
        return thing if isinstance(thing, str) else None


# -- pickling ------------------------------------------------------------------------------------------------------


def pickled(piece: Any, name: str, task: str, data: list[Any]) -> bytes:
    """Return the bytes of one piece; TypeError with its name if it has none."""
    room = io.BytesIO()
    try:
        writer_class()(room, data).dump(piece)
    except Exception as error:  # whatever the user's objects raise
        raise TypeError(
            f"'{name}' of task {task} cannot be saved in a capsule: {type(error).__name__}: {error}; pass what can be "
            "pickled, or install cloudpickle, which saves classes of a program, too"
        ) from error
    return room.getvalue()


def writer_class() -> type[Any]:
    """Return the class that pickles pieces."""
    base: Any = pickle.Pickler
    with contextlib.suppress(ImportError):
        base = importlib.import_module("cloudpickle").Pickler

    class Writer(base):  # type: ignore[misc]
        """A pickler that writes handles as numbers, and functions by value."""

        def __init__(self, file: Any, data: list[Any]) -> None:
            super().__init__(file, protocol=4)
            self.numbers = {id(one): number for number, one in enumerate(data)}

        def persistent_id(self, thing: Any) -> Any:
            if isinstance(thing, Access):
                return "access", self.numbers[id(thing.data.core)], thing.mode, thing.op
            if isinstance(thing, DataHandle):
                if id(thing.core) not in self.numbers:
                    raise TypeError(f"{thing.core.describe()} is no access of the task")
                return "data", self.numbers[id(thing.core)]
            name = thing.name if type(thing) is Reducer else None
            if name is not None and getattr(reducer, name, None) is thing:
                return "reducer", name
            return None

        def reducer_override(self, thing: Any) -> Any:
            if type(thing) is types.FunctionType and not is_of_library(thing):
                return reduced_function(thing)
            if hasattr(type(thing), "made_of"):  # a task function, whose name may lead to a program
                return thing.made_of()
            if type(thing) is types.ModuleType:
                return importlib.import_module, (thing.__name__,)
            if hasattr(base, "reducer_override"):
                return super().reducer_override(thing)
            if isinstance(thing, type) and thing.__module__ == "__main__":
                raise TypeError(f"the class {thing.__name__} is defined in the program itself")
            return NotImplemented

    return Writer


class Reader(pickle.Unpickler):
    """An unpickler that puts data of another context in the place of those that were saved."""

    def __init__(self, file: Any, handles: list[Any]) -> None:
        super().__init__(file)
        self.handles = handles

    def persistent_load(self, ident: Any) -> Any:
        """Return what a handle, an access or a reducer is now."""
        if ident[0] == "reducer":
            return getattr(reducer, ident[1])
        handle = self.handles[ident[1]]
        if ident[0] == "data":
            return handle
        mode, op = ident[2:]
        return handle.accumulate(op) if mode == 4 else (handle.read, handle.write, handle.rw)[mode - 1]()


def is_of_library(fn: types.FunctionType) -> bool:
    """Return whether a function is found by its name, in a module that is installed."""
    module = sys.modules.get(fn.__module__ or "")
    file = getattr(module, "__file__", None)
    if module is None or fn.__module__ == "__main__":
        return False
    is_installed = file is None or fn.__module__.partition(".")[0] in OURS or file.startswith(library_folders())
    try:
        return is_installed and pkgutil.resolve_name(f"{fn.__module__}:{fn.__qualname__}") is fn
    except (AttributeError, ValueError, ImportError):
        return False


def library_folders() -> tuple[str, ...]:
    """Return the folders of installed packages and of the standard library."""
    paths = sysconfig.get_paths()
    return tuple({paths["stdlib"], paths["purelib"], paths["platlib"], *site.getsitepackages()})


def reduced_function(fn: types.FunctionType) -> tuple[Any, ...]:
    """Return a function by value: it is made first, and given what it reads then, which may be the function itself."""
    code = fn.__code__
    names = {step.name for one in codes_in(code) for step in facts_of(one).loads("global", "name")}
    around = {name: fn.__globals__[name] for name in sorted(names) if name in fn.__globals__}
    cells = [contents_of(cell) for cell in fn.__closure__ or ()]
    made = marshal.dumps(code), fn.__name__, fn.__qualname__, fn.__module__, len(cells)
    return (
        made_function,
        made,
        (around, cells, fn.__defaults__, fn.__kwdefaults__, annotations_of(fn)),
        None,
        None,
        completed,
    )


def contents_of(cell: Any) -> list[Any]:
    """Return the content of a cell, in a list; none where it has none yet."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def made_function(code: bytes, name: str, qualname: str, module: str, cells: int) -> types.FunctionType:
    """Return a function that `completed` will complete."""
    closure = tuple(types.CellType() for _ in range(cells)) or None
    around = {"__builtins__": __builtins__, "__name__": module}
    fn = types.FunctionType(marshal.loads(code), around, name, None, closure)
    fn.__qualname__, fn.__module__ = qualname, module
    return fn


def completed(fn: types.FunctionType, state: tuple[Any, ...]) -> None:
    """Give a function what it reads."""
    around, cells, fn.__defaults__, fn.__kwdefaults__, fn.__annotations__ = state
    fn.__globals__.update(around)
    for cell, content in zip(fn.__closure__ or (), cells, strict=True):
        if content:
            cell.cell_contents = content[0]


def annotations_of(fn: types.FunctionType) -> dict[str, Any]:
    """Return the annotations of a function that say something about a task's data, none of them as text."""
    found: dict[str, Any] = {}
    if not fn.__annotations__:
        return found
    for name, parameter in inspect.signature(fn).parameters.items():
        try:
            _, kind, mode, *_ = read_annotation(fn, name, parameter)
        except (TypeError, NameError):
            continue  # it is no task function's
        if mode or kind in ("stream", "task", "random"):
            found[name] = resolved(fn, parameter.annotation)
    result = fn.__annotations__.get("return")
    with contextlib.suppress(TypeError, NameError):
        if result is not None and results_of(fn, "task") is not None:
            found["return"] = resolved(fn, result)
    return found


def resolved(fn: types.FunctionType, annotation: Any) -> Any:
    """Return an annotation that may be text."""
    while isinstance(annotation, str):
        annotation = resolve_annotation(fn, annotation)
    return annotation


def order_of(layout: Any) -> str:
    """Return ``"F"`` for a layout whose first axis is the densest, else ``"C"``."""
    packed = layout.packed()
    is_c = list(packed.strides) == sorted(packed.strides, reverse=True)
    return "C" if is_c or is_narrow(layout.dtype) else "F"
