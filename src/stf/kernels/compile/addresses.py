"""What kernels do with bare addresses: words, flags that blocks show each other, and arguments that lie in a table."""

from __future__ import annotations

import functools
from typing import Any

from stf.kernels.compile.extensions import compiler_of

__all__ = ["argument_reader", "words"]


@functools.cache
def words() -> dict[str, Any]:
    """Return functions for kernels, of addresses in the device's memory as integers; numba-cuda compiles them.

    - ``load(address)``, ``load_word(address)``, ``load_byte(address)`` return the int32, the int64, the byte there.
    - ``store(address, value)``, ``store_word``, ``store_byte`` write such a number.
    - ``acquire(address)`` returns the int32 there. What was written before its `release` is seen from then on.
    - ``release(address, value)`` writes an int32 after all that this thread has written or seen.
    - ``count(address)`` adds 1 to the int32 there, as one step, and returns what was there.
    - ``address(array)`` returns where an array begins.
    - ``clock()`` returns the device's time in ns; ``trap()`` stops the device with an error.
    """
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

        forms: list[Any] = [
            lambda context: (kind(), code),
            lambda context, address: (kind(*kinds), code),
            lambda context, address, value: (kind(*kinds), code),
        ]
        return extending.intrinsic(forms[len(kinds)])

    @extending.intrinsic
    def address(context: Any, array: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = cgutils.create_struct_proxy(array)(context, builder, value=args[0]).data
            return builder.ptrtoint(data, sizes[types.int64])

        return types.int64(array), code

    at = types.int64
    suffixes = {"": types.int32, "_word": types.int64, "_byte": types.uint8}
    return {
        **{f"load{suffix}": loader(kind) for suffix, kind in suffixes.items()},
        **{f"store{suffix}": storer(kind) for suffix, kind in suffixes.items()},
        "acquire": assembled("ld.acquire.gpu.b32 $0, [$1];", types.int32, at),
        "release": assembled("st.release.gpu.b32 [$0], $1;", types.void, at, types.int32),
        "count": assembled("atom.acq_rel.gpu.add.u32 $0, [$1], 1;", types.int32, at),
        "address": address,
        "clock": assembled("mov.u64 $0, %globaltimer;", types.int64),
        "trap": assembled("trap;", types.void),
    }


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
