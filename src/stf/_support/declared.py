"""What a ``.pxd`` declares, for the uncompiled form of its module.

A compiled module gets names from its ``.pxd``: constants of C enums, what it cimports, and fields that begin as zero or
None. The ``.pxd`` is the one place where they stand. `DeclaringLoader` reads it when it loads the ``.py``, and gives
the module the same names:

=================================  ==========================================================
in the .pxd                        in the uncompiled module
=================================  ==========================================================
``cdef enum: NAME = 1``            a global, before the module runs
``from stf.x cimport NAME``        a global, before the module runs: such a constant, or an attribute of that module
``cdef int count``, in a class     an attribute of the class: 0, False or 0.0 by its type; None for objects
=================================  ==========================================================

A module keeps what it defines itself. C pointers and arrays get nothing: code that uses them asks `cython.compiled`.
Where Cython is not installed, `uncompiled` stands in for the ``cython`` that such a module imports. Before this loader,
each module repeated these names behind ``if not cython.compiled``, and nothing said when they differed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from stf._support import uncompiled

PACKAGE = os.path.dirname(os.path.dirname(__file__))
CIMPORT = re.compile(r"^from (stf\.\S+|stf) cimport (.+)$", re.MULTILINE)
ENUM = re.compile(r"^(?:cdef|cpdef) enum\b.*:.*\n((?:[ \t]+.*\n|\n)+)", re.MULTILINE)
CONSTANT = re.compile(r"^[ \t]+(\w+) = ([^#\n]+)", re.MULTILINE)
CLASS = re.compile(r"^cdef class (\w+).*:.*\n((?:[ \t]+.*\n|\n)+)", re.MULTILINE)
FIELD = re.compile(r"^    cdef (?:readonly |public )?([^(\n#]*[^(\n# ])[ \t]*(?:#.*)?$", re.MULTILINE)
ZEROS: dict[str, Any] = {"object": None, "bint": False, "double": 0.0, "float": 0.0}
NUMBERS = re.compile(r"(?:unsigned )?(?:u?int\d*_t|int|long long|long|char|Py_ssize_t|size_t)\b")


class Declared(NamedTuple):
    """What a ``.pxd`` says that Python needs."""

    constants: dict[str, int]
    imported: list[tuple[str, str]]  # (module, name)
    fields: dict[str, dict[str, Any]]  # by class


@functools.cache
def declared_in(module: str) -> Declared:
    """Return what the ``.pxd`` of a module declares; nothing if it has none."""
    try:
        with open(file_of(module, ".pxd"), encoding="utf-8") as file:
            text = file.read() + "\n"
    except FileNotFoundError:
        return Declared({}, [], {})
    constants: dict[str, int] = {}
    for body in ENUM.findall(text):
        for name, value in CONSTANT.findall(body):
            constants[name] = eval(value, {}, constants)
    imported = [(source, name.strip()) for source, names in CIMPORT.findall(text) for name in names.split(",")]
    classes = {kind: FIELD.findall(body) for kind, body in CLASS.findall(text)}
    fields = {kind: dict(pair for line in lines for pair in fields_of(line)) for kind, lines in classes.items()}
    return Declared(constants, imported, fields)


def fields_of(line: str) -> list[tuple[str, Any]]:
    """Return the fields of a line such as ``int64_t one, other`` with what they begin as."""
    if "*" in line or "[" in line:
        return []
    first, *others = line.split(",")
    kind, _, name = first.rpartition(" ")
    zero = 0 if NUMBERS.fullmatch(kind) else ZEROS.get(kind)
    return [(each.strip(), zero) for each in (name, *others) if not name.startswith("__")]


def file_of(module: str, suffix: str) -> str:
    """Return where a file of a module's name would lie."""
    return os.path.join(PACKAGE, *module.split(".")[1:]) + suffix


def has_cython() -> bool:
    """Return whether ``import cython`` finds something."""
    if "cython" in sys.modules:
        return sys.modules["cython"] is not None
    return importlib.util.find_spec("cython") is not None


@contextlib.contextmanager
def standing_in() -> Iterator[None]:
    """Let ``import cython`` find `uncompiled`; in the with-block only, or other libraries would take it for Cython."""
    before = {name: sys.modules[name] for name in ("cython",) if name in sys.modules}
    sys.modules["cython"] = uncompiled
    try:
        yield
    finally:
        del sys.modules["cython"]
        sys.modules.update(before)


class DeclaringLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from its ``.py``, with what its ``.pxd`` declares."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module."""
        found, names = declared_in(module.__name__), module.__dict__
        names.update(found.constants)
        for source, name in found.imported:
            if name in declared_in(source).constants:
                names[name] = declared_in(source).constants[name]
            elif os.path.exists(file_of(source, ".py")):
                names[name] = getattr(importlib.import_module(source), name, None)
            elif os.path.exists(file_of(f"{source}.{name}", ".py")):
                names[name] = importlib.import_module(f"{source}.{name}")
        with contextlib.nullcontext() if has_cython() else standing_in():
            super().exec_module(module)
        for kind, fields in found.fields.items():
            for name, zero in fields.items():
                if name not in vars(names[kind]):
                    setattr(names[kind], name, zero)
