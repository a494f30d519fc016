"""The array libraries whose arrays bodies may get, and how to install them."""

from __future__ import annotations

import importlib
from typing import Any

INSTALL = {
    "cupy": "pip install cupy-cuda13x",
    "torch": "pip install torch",
    "numba": "pip install numba-cuda[cu13]",
    "jax": "pip install jax (on GPUs jax[cuda13])",
}


def check_library(lib: Any) -> None:
    """Raise unless `lib` names a library whose arrays a body may get."""
    if lib not in ("numpy", "cupy", "torch", "numba", "jax"):
        raise ValueError(f"arrays= is 'numpy', 'cupy', 'torch', 'numba' or 'jax', got {lib!r}")


def import_library(name: str) -> Any:
    """Import an array library, or say how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise ImportError(
            f"this task asks for {library} arrays and {library} is not installed: {INSTALL[library]}"
        ) from error
