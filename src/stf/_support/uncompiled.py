"""What our modules use of the ``cython`` module, for running them uncompiled where Cython isn't installed.

Each module that is compiled starts with ``import cython``; where there is none, `declared` lets it find this module.
Decorators do nothing, C types are the Python types that hold their values, and `compiled` is False.
"""

from __future__ import annotations

import builtins
from typing import Any

compiled = False
NULL = None


def _same(thing: Any) -> Any:
    return thing


def _decorator(*args: Any, **kwargs: Any) -> Any:
    return _same


class _Section:
    """`cython.nogil`: a decorator, and a with-block."""

    def __call__(self, thing: Any = None) -> Any:
        return self if thing is None or isinstance(thing, builtins.bool) else thing

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


# Used as @name
cclass = cfunc = ccall = inline = final = internal = no_gc = no_gc_clear = ufunc = _same

# Used as @name(...)
annotation_typing = auto_pickle = binding = boundscheck = cdivision = collection_type = embedsignature = _decorator
exceptval = freelist = initializedcheck = locals = nonecheck = overflowcheck = profile = returns = _decorator
test_assert_path_exists = total_ordering = type_version_tag = wraparound = _decorator

nogil = gil = with_gil = _Section()

# Types
char = schar = uchar = short = ushort = int = uint = long = ulong = longlong = ulonglong = builtins.int
Py_ssize_t = size_t = ssize_t = Py_hash_t = Py_UCS4 = builtins.int
bint = builtins.bool
float = double = longdouble = builtins.float
p_void = p_char = p_int = p_long = p_longlong = p_double = void = object


def declare(kind: Any = None, value: Any = None, **names: Any) -> Any:
    """Return `value`, or a zero of type `kind`."""
    return kind() if value is None and kind in (builtins.int, builtins.bool, builtins.float) else value


def cast(kind: Any, value: Any, *, typecheck: builtins.bool = False) -> Any:
    """Return `value`."""
    return value


def likely(condition: Any) -> Any:
    """Return `condition`."""
    return condition


unlikely = likely


def pointer(kind: Any) -> Any:
    """Return a stand-in for a pointer type."""
    return object
