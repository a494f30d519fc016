"""What our modules use of the ``cython`` module, for running them uncompiled where Cython isn't installed.

Each module that is compiled starts with ``import cython``; where there is none, `declared` lets it find this module.
Decorators do nothing, C types are the Python types that hold their values, and `compiled` is False.
"""

from __future__ import annotations

import builtins
import contextlib
from typing import Any

compiled = False
NULL = None
nogil = contextlib.nullcontext()


def _same(thing: Any) -> Any:
    return thing


def _decorator(*args: Any) -> Any:
    return _same


cclass = final = no_gc = no_gc_clear = _same  # used as @name
annotation_typing = binding = freelist = nonecheck = _decorator  # used as @name(...)

# Types
int = long = ulong = longlong = ulonglong = Py_ssize_t = builtins.int
bint = builtins.bool
double = builtins.float
p_void = object


def cast(kind: Any, value: Any) -> Any:
    """Return `value`."""
    return value
