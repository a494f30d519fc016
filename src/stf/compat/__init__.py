"""Other libraries' names over stf.

`install` lets ``import cuda.stf._experimental`` give `stf.compat.cuda_stf`, so that a program runs on stf unchanged.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["install", "uninstall"]

OURS = "stf.compat.cuda_stf"
PEER = "cuda.stf._experimental"


class Names:
    """Finds the modules of `cuda.stf._experimental`: they are those of stf, under a second name."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return how to load a module; None for those of others."""
        if name == PEER or name.startswith(PEER + "."):
            ours = OURS + name.removeprefix(PEER)
            return None if importlib.util.find_spec(ours) is None else ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module of stf."""
        module = importlib.import_module(OURS + spec.name.removeprefix(PEER))
        self.own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it was: importing it by another name has changed how it says it was found."""
        module.__spec__ = self.own


class Packages:
    """Finds `cuda` and `cuda.stf` where nobody has them, as a last resort: they may have other parts."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return an empty package; None for all other modules."""
        if not PEER.startswith(name + "."):
            return None
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = []
        return spec


_names, _packages = Names(), Packages()


def install() -> None:
    """Let ``import cuda.stf._experimental as stf`` give `stf.compat.cuda_stf`, in this process.

    Other parts of ``cuda``, such as ``cuda.core`` and ``cuda.bindings``, are what they were. Calling it again does
    nothing.

    Raises
    ------
    RuntimeError
        NVIDIA's package was imported already.

    Examples
    --------
    >>> import stf.compat
    >>> stf.compat.install()
    >>> import cuda.stf._experimental as cuda_stf
    >>> with cuda_stf.context() as ctx:
    ...     lX = ctx.logical_data(np.ones(3))
    ...     ctx.host_launch(lX.rw(), fn=lambda x: np.multiply(x, 2, out=x))
    ...     print(ctx.wait(lX))
    [2. 2. 2.]
    >>> stf.compat.uninstall()
    """
    present = sys.modules.get(PEER)
    if present is not None and present is not sys.modules.get(OURS):
        raise RuntimeError(f"{PEER} of NVIDIA's package was imported already; call stf.compat.install() before")
    if _names not in sys.meta_path:
        sys.meta_path.insert(0, _names)  # type: ignore[arg-type]
        sys.meta_path.append(_packages)  # type: ignore[arg-type]


def uninstall() -> None:
    """Take back what `install` did; who has imported a module keeps it."""
    if _names not in sys.meta_path:
        return
    sys.meta_path.remove(_names)  # type: ignore[arg-type]
    sys.meta_path.remove(_packages)  # type: ignore[arg-type]
    middle = PEER.rpartition(".")[0]
    for name in [name for name in sys.modules if name == PEER or name.startswith(PEER + ".")]:
        del sys.modules[name]
    package = sys.modules.get(middle)
    if package is None:
        return
    vars(package).pop(PEER.rpartition(".")[2], None)
    if package.__spec__ is not None and package.__spec__.submodule_search_locations == []:
        del sys.modules[middle]
        vars(sys.modules[PEER.partition(".")[0]]).pop(middle.rpartition(".")[2], None)
