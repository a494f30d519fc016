"""How types and functions are added to Numba's compilers: the same way for a CPU and for a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stf.kernels.compile.python import intrinsics

__all__ = ["Extension", "compiler_of"]


class Extension:
    """Types and functions for one of the compilers. A value of such a type is made of one field."""

    def __init__(self, of_gpu: bool) -> None:
        self.of_gpu = of_gpu
        self.extending, self.types, self.cgutils, self.models, self.jit, self.error = compiler_of(of_gpu)

    def made_of(self, kind: Any, field: str) -> None:
        """Have the values of a type be made of a field, whose type is the attribute of that name."""
        models = self.models

        @self.extending.register_model(kind)
        class Model(models.StructModel):  # type: ignore[misc,name-defined]
            def __init__(self, manager: Any, one: Any) -> None:
                super().__init__(manager, one, [(field, getattr(one, field))])

    def getter(self, field: str, kind: Any) -> Any:
        """Return a function for kernels that gives the only field of a type."""
        cgutils, is_counted = self.cgutils, not self.of_gpu

        @self.extending.intrinsic
        def get(context: Any, item: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                found = getattr(cgutils.create_struct_proxy(item)(context, builder, value=args[0]), field)
                if is_counted:
                    context.nrt.incref(builder, signature.return_type, found)
                return found

            return (getattr(item, field)(item), code) if isinstance(item, kind) else None

        return get

    def maker(self, kind_for: Callable[[Any], Any], field: str) -> Any:
        """Return a function for kernels that makes something of its only field, of the type that `kind_for` gives."""
        cgutils, is_counted = self.cgutils, not self.of_gpu

        @self.extending.intrinsic
        def make(context: Any, item: Any) -> Any:
            kind = kind_for(self.types.unliteral(item))

            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                made = cgutils.create_struct_proxy(kind)(context, builder)
                setattr(made, field, args[0])
                if is_counted:
                    context.nrt.incref(builder, signature.args[0], args[0])
                return made._getvalue()

            return kind(self.types.unliteral(item)), code

        return make


def compiler_of(of_gpu: bool) -> tuple[Any, ...]:
    """Return the modules of a compiler.

    Its extensions, types, code, models, what compiles a function, and its error.
    """
    if of_gpu:
        intrinsics()
        from numba.cuda import cgutils, extending, jit, models, types

        return extending, types, cgutils, models, functools.partial(jit, device=True), TypeError
    from numba import extending as for_cpu
    from numba import njit
    from numba import types as kinds
    from numba.core import cgutils as code
    from numba.core.datamodel import models as data_models
    from numba.core.errors import TypingError

    return for_cpu, kinds, code, data_models, njit, TypingError
