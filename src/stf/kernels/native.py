"""Compiled loops as steps: a function that takes its arguments from a table, and calls the loop.

Numba compiles a loop to ``int32 loop(result *, error **, arguments…)``, with each array as seven or more of these.
A step is called with the address of its slots. So there is a *thunk* between both, which loads the arguments from the
slots and calls the loop, whose address is in the first slot. So it depends on the types of the arguments alone, and few
thunks serve all loops. It is made of LLVM's instructions in milliseconds. Numba's own way, a ``cfunc`` around the loop,
takes 0.1 to 1 s for each loop, and might compile the loop to other code than the one that is played.

Of an array the slots have the address, the extents, and the strides where the extents do not say them. The thunk knows
the rest: slots are memory that goes from core to core.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stf._drivers.base import address_of
from stf._port.native import Address, NativeCall, NotNativeError, NotThisTimeError, Number
from stf.kernels.loops import kind_of

__all__ = ["native_call"]

NO_RESULT = -2  # what Numba's functions return that return None

thunks: dict[Any, int] = {}  # addresses, by the type of the function that is called, and the forms of its arguments
engines: list[Any] = []  # whose code they are
entries: dict[Any, Entry] = {}  # by loop and what decides the types of its arguments


class ArrayForm(NamedTuple):
    """How an array is passed: its axes, the bytes of an element, and whether its strides are in slots, too."""

    ndim: int
    itemsize: int
    has_strides: bool


class Entry(NamedTuple):
    """A loop that is compiled for certain types: its thunk, its address, and what keeps it.

    `word_of` makes the word of each argument, and `words_of` the words; an array has a form. `changing` are the slots
    that differ from call to call, by where its arguments are among those of a body.
    """

    thunk: int
    target: int
    kept: Any
    word_of: list[Callable[[Any], int] | None]
    words_of: list[Callable[[Any], list[int]] | None]
    forms: list[ArrayForm | None]
    changing: dict[tuple[int, ...], tuple[tuple[Number, ...], tuple[Address, ...]]]


def native_call(loop: Any, arguments: tuple[Any, ...], positions: Sequence[int]) -> NativeCall:
    """Return the step that calls a loop.

    Parameters
    ----------
    loop : dispatcher
        Of Numba's.
    arguments : tuple
    positions : sequence of int
        Where each of them is among the arguments of the task's body; -1 for others.

    Raises
    ------
    NotNativeError
        It takes what cannot be in a table.
    """
    key = (
        loop,
        tuple(map(kind_of, arguments)),
        tuple([i for i, value in enumerate(arguments) if has_own_strides(value)]),
    )
    entry = entries.get(key)
    if entry is None:
        entry = entries[key] = entry_of(loop, arguments)
    slots = [entry.target]
    firsts = []
    for word_of, words_of, form, value in zip(entry.word_of, entry.words_of, entry.forms, arguments, strict=True):
        firsts.append(len(slots))
        if word_of is not None:
            slots.append(word_of(value))
        elif form is not None:
            slots += (address_of(value), *value.shape, *(value.strides if form.has_strides else ()))
        elif words_of is not None:
            slots += words_of(value)
    where = tuple(positions)
    changing = entry.changing.get(where)
    if changing is None:
        changing = entry.changing[where] = changing_in(entry, firsts, where)
    return NativeCall(entry.thunk, slots, *changing)


def changing_in(
    entry: Entry, firsts: list[int], positions: tuple[int, ...]
) -> tuple[tuple[Number, ...], tuple[Address, ...]]:
    """Return the slots of numbers and addresses, of arguments that begin at these slots."""
    numbers, addresses = [], []
    for word_of, form, first, position in zip(entry.word_of, entry.forms, firsts, positions, strict=True):
        if position >= 0 and word_of is not None:
            numbers.append(Number(first, position, word_of))
        elif position >= 0 and form is not None:
            addresses.append(Address(first, position))
    return tuple(numbers), tuple(addresses)


def entry_of(loop: Any, arguments: tuple[Any, ...]) -> Entry:
    """Return a loop, compiled for arguments like these; NotNativeError if one of them cannot be in a table."""
    import numba
    from numba import types
    from numba.core.compiler_lock import global_compiler_lock

    if any(type(value) is int and value >= 1 << 63 for value in arguments):  # smaller ones have another type
        raise NotNativeError("takes an integer of more than 63 bits")
    kinds = tuple(map(numba.typeof, arguments))
    loop.compile(kinds)
    made = loop.overloads.get(kinds)
    if made is None:  # it comes from the disk, with the class of a named tuple that another process had
        raise NotNativeError("takes a tuple whose class is another one than it was compiled for")
    function = made.target_context.call_conv.get_function_type(made.fndesc.restype, made.fndesc.argtypes)
    target = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    if not target:
        raise NotNativeError("is compiled to code that has no address")
    word_of: list[Any] = []
    words_of: list[Any] = []
    forms: list[ArrayForm | None] = []
    for kind, value in zip(kinds, arguments, strict=True):
        is_number = isinstance(kind, (types.Integer, types.Float, types.Boolean))
        is_array = isinstance(kind, types.Array)
        word_of.append(packing(kind, value.__class__) if is_number else None)
        words_of.append(None if is_number or is_array else words_for(kind))
        forms.append(ArrayForm(kind.ndim, value.itemsize, has_own_strides(value)) if is_array else None)
    counts = [1 if make is None else len(make(value)) for make, value in zip(words_of, arguments, strict=True)]
    passed = tuple(form or count for form, count in zip(forms, counts, strict=True))
    key = str(function), passed
    with global_compiler_lock:  # which a fork waits for: see `forks`
        if key not in thunks:
            thunks[key] = thunk_for(function, passed)
    return Entry(thunks[key], target, made, word_of, words_of, forms, {})


def has_own_strides(value: Any) -> bool:
    """Return whether it is an array whose strides its extents do not say.

    Without gaps and in C's order it may still be: the stride of an axis with one element is any number.
    """
    if not isinstance(value, np.ndarray):
        return False
    if not value.flags.c_contiguous or min(value.shape, default=2) > 1:
        return not value.flags.c_contiguous
    return value.strides != (*(value.itemsize * math.prod(value.shape[axis + 1 :]) for axis in range(value.ndim)),)


def thunk_for(function: Any, passed: Sequence[ArrayForm | int]) -> int:
    """Return the address of a thunk that calls functions of a type of LLVM's.

    `passed` says of each argument how it is passed: an array by its form, others as so many words.
    """
    import llvmlite.binding as llvm
    from llvmlite import ir

    word, code = ir.IntType(64), ir.IntType(32)
    module = ir.Module("stf_thunk")
    module.triple = llvm.get_process_triple()
    name = f"stf_thunk_{len(engines)}"
    thunk = ir.Function(module, ir.FunctionType(code, [word.as_pointer()]), name)
    build = ir.IRBuilder(thunk.append_basic_block())
    slots = thunk.args[0]
    given = []
    for kind in function.args[:2]:  # where a result and an error go
        room = build.alloca(kind.pointee)
        build.store(ir.Constant(kind.pointee, None), room)
        given.append(room)
    numbers = itertools.count(1)

    def loaded(kind: Any) -> Any:
        slot = build.gep(slots, [ir.Constant(word, next(numbers))])
        return build.load(build.bitcast(slot, kind.as_pointer()))

    for form in passed:
        kinds = function.args[len(given) :]
        if isinstance(form, int):
            given += [loaded(kind) for kind in kinds[:form]]
            continue
        itemsize = ir.Constant(word, form.itemsize)
        address, extents = loaded(kinds[4]), [loaded(word) for _ in range(form.ndim)]
        strides, size = [itemsize], ir.Constant(word, 1)
        for extent in reversed(extents):
            strides.insert(0, build.mul(extent, strides[0]))
            size = build.mul(extent, size)
        strides = [loaded(word) for _ in extents] if form.has_strides else strides[1:]
        given += [ir.Constant(kinds[0], None), ir.Constant(kinds[1], None), size, itemsize, address, *extents, *strides]
    target = build.inttoptr(build.load(slots), function.as_pointer())
    status = build.call(target, given)
    plain = build.icmp_signed("==", status, ir.Constant(code, NO_RESULT))
    build.ret(build.select(plain, ir.Constant(code, 0), status))
    machine = llvm.Target.from_triple(module.triple).create_target_machine(opt=2, jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    engines.append(engine)
    return int(engine.get_function_address(name))


def words_for(kind: Any) -> Callable[[Any], list[int]]:
    """Return what makes the words of a value of a type of Numba's that is neither a number nor an array."""
    from numba import types

    if isinstance(kind, types.Complex):
        half = types.float32 if kind == types.complex64 else types.float64
        return lambda value: [packed_float(half, value.real), packed_float(half, value.imag)]
    if isinstance(kind, types.Dispatcher):
        return lambda value: [0]
    if isinstance(kind, (types.Integer, types.Float, types.Boolean)):
        return lambda value: [packing(kind, value.__class__)(value)]
    if isinstance(kind, (types.UniTuple, types.Tuple, types.NamedTuple, types.NamedUniTuple)):
        inner = [words_for(item) for item in kind.types]
        return lambda value: [word for make, item in zip(inner, value, strict=True) for word in make(item)]
    raise NotNativeError(f"takes a value of type {kind}")


@functools.lru_cache(maxsize=256)
def packing(kind: Any, wanted: Any) -> Callable[[Any], int]:
    """Return what makes a slot of a number of a type of Numba's, which has this type of Python's or NumPy's."""
    from numba import types

    is_float = isinstance(kind, types.Float)
    limit = 1 << 63 if wanted is int else 1 << 64

    def packed(value: Any) -> int:
        if type(value) is not wanted:  # with which the loop would be compiled anew
            raise NotThisTimeError
        if is_float:
            return packed_float(kind, value)
        number: int = int(value)
        if not -(1 << 63) <= number < limit:
            raise NotThisTimeError
        return number if number < 1 << 63 else number - (1 << 64)

    return packed


def packed_float(kind: Any, value: Any) -> int:
    """Return the bits of a floating-point number."""
    packed = (
        struct.pack("<d", value) if kind.bitwidth == 64 else np.dtype(f"<f{kind.bitwidth // 8}").type(value).tobytes()
    )
    return int.from_bytes(packed, "little", signed=len(packed) == 8)
