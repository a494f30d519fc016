"""Bundles: data that tasks use together, as one dependence."""

from __future__ import annotations

from typing import Any

from stf.compat.cuda_stf.data import AccessMode, Data, dep


class constant:
    """A field of a bundle that is only read through it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class bundle_dep:
    """The dependences of a bundle, which a task takes as one argument."""

    __slots__ = ("acquired", "deps", "names")

    _stf_bundle_dep = True

    def __init__(self, deps: Any, names: Any, acquired: Any) -> None:
        self.deps, self.names, self.acquired = list(deps), list(names), list(acquired)


class bundle:
    """Logical data under names: ``ctx.bundle(values=lV, columns=constant(lC))``. It owns nothing.

    ``t.get(i)`` gives their arrays as attributes of one object.
    """

    def __init__(self, ctx: Any, **fields: Any) -> None:
        if not fields:
            raise ValueError("a bundle needs at least one field")
        self._fields: dict[str, Any] = {}
        self._constant = {name for name, value in fields.items() if isinstance(value, constant)}
        for name, value in fields.items():
            data = value.value if isinstance(value, constant) else value
            if not isinstance(data, Data):
                raise TypeError(f"bundle field {name!r} is logical data, got {data!r}; use ctx.logical_data(array)")
            self._fields[name] = data

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_fields"][name]
        except KeyError:
            raise AttributeError(f"the bundle has no field {name!r}") from None

    def __len__(self) -> int:
        return len(self._fields)

    def read(self, dplace: Any = None) -> bundle_dep:
        """Return a dependence that reads all fields."""
        return self._made(dict.fromkeys(self._fields, AccessMode.READ), dplace)

    def rw(self, dplace: Any = None) -> bundle_dep:
        """Return a dependence that reads all fields and writes those that are not constant."""
        return self._made(dict.fromkeys(self._fields, AccessMode.RW), dplace)

    def write(self, dplace: Any = None) -> bundle_dep:
        """Return a dependence that overwrites the fields, and reads those that are constant."""
        return self._made(dict.fromkeys(self._fields, AccessMode.WRITE), dplace)

    def dep(self, dplace: Any = None, **modes: Any) -> bundle_dep:
        """Return a dependence with a mode for each field: READ by default, NONE leaves it out.

        Raises
        ------
        KeyError
            There is no such field.
        ValueError
            A constant field would be written.
        """
        chosen = dict.fromkeys(self._fields, AccessMode.READ)
        for name, mode in modes.items():
            if name not in self._fields:
                raise KeyError(f"bundle has no field {name!r}")
            if name in self._constant and mode not in (AccessMode.READ, AccessMode.NONE):
                raise ValueError(f"field {name!r} is constant in this bundle, and can only be read")
            chosen[name] = AccessMode(mode)
        return self._made(chosen, dplace)

    def _made(self, modes: dict[str, AccessMode], dplace: Any) -> bundle_dep:
        deps, acquired = [], []
        for name, mode in modes.items():
            taken = AccessMode.READ if mode and name in self._constant else mode
            acquired.append(bool(taken))
            if taken:
                deps.append(dep(self._fields[name], taken, dplace))
        return bundle_dep(deps, modes, acquired)
