"""Compiled loops as steps: a function that takes its arguments from a table, and calls the loop.

Numba compiles a loop to ``int32 loop(result *, error **, arguments…)``, with each array as seven or more of these.
A step is called with the address of its slots. So there is a *thunk* between both, which loads the arguments from the
slots and calls the loop, whose address is in the first slot. So it depends on the types of the arguments alone, and few
thunks serve all loops. It is made of LLVM's instructions in milliseconds. Numba's own way, a ``cfunc`` around the loop,
takes 0.1 to 1 s for each loop, and might compile the loop to other code than the one that is played.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from stf._port.native import Address, NativeCall, NotNativeError, NotThisTimeError, Number

__all__ = ["native_call"]

NO_RESULT = -2  # what Numba's functions return that return None

thunks: dict[str, int] = {}  # addresses, by the type of the function that is called
engines: list[Any] = []  # whose code they are
entries: dict[Any, tuple[int, int, Any]] = {}  # by loop and types: thunk, loop, and what keeps it


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
    import numba

    kinds = tuple(map(numba.typeof, arguments))
    key = loop, kinds
    if key not in entries:
        entries[key] = entry_of(loop, kinds)
    thunk, target, _ = entries[key]
    slots = [target]
    numbers, addresses = [], []
    for kind, value, position in zip(kinds, arguments, positions, strict=True):
        if position >= 0 and isinstance(kind, numba.types.Array):
            addresses.append(Address(len(slots) + 4, position))
        elif position >= 0 and isinstance(kind, (numba.types.Integer, numba.types.Float, numba.types.Boolean)):
            numbers.append(Number(len(slots), position, packing(kind, value.__class__)))
        slots += words(kind, value)
    return NativeCall(thunk, slots, tuple(numbers), tuple(addresses))


def entry_of(loop: Any, kinds: tuple[Any, ...]) -> tuple[int, int, Any]:
    """Return the thunk for a loop with arguments of these types, the loop's address, and what keeps it."""
    loop.compile(kinds)
    made = loop.overloads[kinds]
    function = made.target_context.call_conv.get_function_type(made.fndesc.restype, made.fndesc.argtypes)
    target = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    if not target:
        raise NotNativeError("is compiled to code that has no address")
    text = str(function)
    if text not in thunks:
        thunks[text] = thunk_for(function)
    return thunks[text], target, made


def thunk_for(function: Any) -> int:
    """Return the address of a thunk that calls functions of a type of LLVM's."""
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
    for number, kind in enumerate(function.args[2:], 1):
        slot = build.gep(slots, [ir.Constant(word, number)])
        given.append(build.load(build.bitcast(slot, kind.as_pointer())))
    target = build.inttoptr(build.load(slots), function.as_pointer())
    status = build.call(target, given)
    plain = build.icmp_signed("==", status, ir.Constant(code, NO_RESULT))
    build.ret(build.select(plain, ir.Constant(code, 0), status))
    machine = llvm.Target.from_triple(module.triple).create_target_machine(opt=2, jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    engines.append(engine)
    return int(engine.get_function_address(name))


def words(kind: Any, value: Any) -> Iterator[int]:
    """Yield what slots hold for a value of a type of Numba's, in the order of its arguments."""
    from numba import types

    if isinstance(kind, types.Array):
        yield from (
            0,
            0,
            value.size,
            value.itemsize,
            value.__array_interface__["data"][0],
            *value.shape,
            *value.strides,
        )
    elif isinstance(kind, (types.Integer, types.Boolean, types.Float)):
        yield packing(kind, value.__class__)(value)
    elif isinstance(kind, types.Complex):
        half = types.float32 if kind == types.complex64 else types.float64
        yield from (packed_float(half, value.real), packed_float(half, value.imag))
    elif isinstance(kind, (types.UniTuple, types.Tuple, types.NamedTuple, types.NamedUniTuple)):
        for inner, item in zip(kind.types, value, strict=True):
            yield from words(inner, item)
    elif isinstance(kind, types.Dispatcher):
        yield 0
    else:
        raise NotNativeError(f"takes a value of type {kind}")


@functools.lru_cache(maxsize=256)
def packing(kind: Any, wanted: Any) -> Callable[[Any], int]:
    """Return what makes a slot of a number of a type of Numba's, which has this type of Python's or NumPy's."""
    from numba import types

    def packed(value: Any) -> int:
        if type(value) is not wanted:  # with which the loop would be compiled anew
            raise NotThisTimeError
        if isinstance(kind, types.Float):
            return packed_float(kind, value)
        number: int = int(value)
        if not -(1 << 63) <= number < (1 << 63 if wanted is int else 1 << 64):
            raise NotThisTimeError
        return number if number < 1 << 63 else number - (1 << 64)

    return packed


def packed_float(kind: Any, value: Any) -> int:
    """Return the bits of a floating-point number."""
    if kind.bitwidth == 16:
        bits: int = np.float16(value).view(np.uint16).item()
        return bits
    code = {32: "<fi", 64: "<d"}[kind.bitwidth]
    packed = struct.pack(code, value, 0) if kind.bitwidth == 32 else struct.pack(code, value)
    found: int = struct.unpack("<q", packed)[0]
    return found
