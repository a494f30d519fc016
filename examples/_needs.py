"""What an example needs and this machine may not have."""

import importlib
import importlib.util
import sys
from typing import Any

import stf

PACKAGES = {"cupy": "cupy-cuda13x"}


def needs_gpu(library: str | None = None) -> Any:
    """Return a library; end the program with one line where it is missing, or where there is no CUDA device."""
    lines = []
    try:
        stf.context(devices="cuda").finalize()
    except stf.PlaceError:
        lines.append("a machine with an NVIDIA GPU")
    if library is not None and importlib.util.find_spec(library) is None:
        lines.append(f"pip install {PACKAGES.get(library, library)}")
    if lines:
        sys.exit(f"{sys.argv[0]} needs {' and '.join(lines)}")
    return None if library is None else importlib.import_module(library)
