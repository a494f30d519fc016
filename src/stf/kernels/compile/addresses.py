"""What kernels do with bare addresses: words, flags that blocks show each other, and arguments that lie in a table."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from stf.kernels.compile.reduced_arrays import compiler_of

__all__ = ["Words", "argument_reader", "words"]


class Words(NamedTuple):
    """Functions for kernels, of addresses in the device's memory as integers.

    Attributes
    ----------
    load : callable
        ``load(address)`` returns the int32 there.
    load_word : callable
        ``load_word(address)`` returns the int64 there.
    load_byte : callable
        ``load_byte(address)`` returns the byte there.
    store : callable
        ``store(address, value)`` writes an int32.
    store_word, store_byte : callable
        The same for an int64 and a byte.
    acquire : callable
        ``acquire(address)`` returns the int32 there. What was written before its `release` is seen from then on.
    release : callable
        ``release(address, value)`` writes an int32 after all that this thread has written or seen.
    count : callable
        ``count(address)`` adds 1 to the int32 there, as one step, and returns what was there.
    address : callable
        ``address(array)`` returns where an array begins.
    clock : callable
        ``clock()`` returns the device's time in ns.
    trap : callable
        ``trap()`` stops the device with an error.
    """

    load: Any
    load_word: Any
    load_byte: Any
    store: Any
    store_word: Any
    store_byte: Any
    acquire: Any
    release: Any
    count: Any
    address: Any
    clock: Any
    trap: Any


@functools.cache
def words() -> Words:
    """Return the functions, which numba-cuda compiles."""
    from llvmlite import ir

    extending, types, cgutils = compiler_of(True)[:3]
    sizes = {types.int32: ir.IntType(32), types.int64: ir.IntType(64), types.uint8: ir.IntType(8)}

    def loader(kind: Any) -> Any:
        @extending.intrinsic
        def load(context: Any, address: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return builder.load(builder.inttoptr(args[0], sizes[kind].as_pointer()))

            return kind(types.int64), code

        return load

    def storer(kind: Any) -> Any:
        @extending.intrinsic
        def store(context: Any, address: Any, value: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                builder.store(args[1], builder.inttoptr(args[0], sizes[kind].as_pointer()))
                return context.get_dummy_value()

            return types.void(types.int64, kind), code

        return store

    def assembled(text: str, kind: Any, *kinds: Any) -> Any:
        """Return a function of one instruction, which nothing is moved across, and of the type that it gives."""
        gives = kind is not types.void
        result = sizes[kind] if gives else ir.VoidType()
        letters = {types.int32: "r", types.int64: "l"}
        given = [f"={letters[kind]}"] if gives else []
        constraints = ",".join([*given, *[letters[one] for one in kinds], "~{memory}"])

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            function = ir.FunctionType(result, [sizes[one] for one in kinds])
            found = builder.asm(function, text, constraints, args, side_effect=True)
            return found if gives else context.get_dummy_value()

        if not kinds:

            @extending.intrinsic
            def call(context: Any) -> Any:
                return kind(), code

        elif len(kinds) == 1:

            @extending.intrinsic
            def call(context: Any, address: Any) -> Any:
                return kind(*kinds), code

        else:

            @extending.intrinsic
            def call(context: Any, address: Any, value: Any) -> Any:
                return kind(*kinds), code

        return call

    @extending.intrinsic
    def address(context: Any, array: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = cgutils.create_struct_proxy(array)(context, builder, value=args[0]).data
            return builder.ptrtoint(data, sizes[types.int64])

        return types.int64(array), code

    at = types.int64
    return Words(
        loader(types.int32),
        loader(types.int64),
        loader(types.uint8),
        storer(types.int32),
        storer(types.int64),
        storer(types.uint8),
        assembled("ld.acquire.gpu.b32 $0, [$1];", types.int32, at),
        assembled("st.release.gpu.b32 [$0], $1;", types.void, at, types.int32),
        assembled("atom.acq_rel.gpu.add.u32 $0, [$1], 1;", types.int32, at),
        address,
        assembled("mov.u64 $0, %globaltimer;", types.int64),
        assembled("trap;", types.void),
    )


def argument_reader(kind: Any, offsets: list[int]) -> Any:
    """Return a function for kernels that reads an argument from where its parts lie behind an address.

    Parameters
    ----------
    kind : numba type
    offsets : list of int
        Of each of its parts, as a kernel's parameters have them.
    """
    extending, types = compiler_of(True)[:2]

    @extending.intrinsic
    def read(context: Any, address: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            packer = context.get_arg_packer([kind])
            parts = []
            for part, offset in zip(packer.argument_types, offsets, strict=True):
                where = builder.add(args[0], args[0].type(offset))
                parts.append(builder.load(builder.inttoptr(where, part.as_pointer())))
            (value,) = packer.from_arguments(builder, parts)
            return value

        return kind(types.int64), code

    return read
