"""Call sites: the file and line of a call, from the code object and the instruction that made it."""

from __future__ import annotations

import os
import sys
from functools import cache
from types import CodeType, FrameType


def file_text(name: str) -> str:
    """Return what messages call a file.

    Its name without the folder; a cell of a notebook is ``In[3]``, as IPython says it.
    """
    if "ipython" in name or "ipykernel" in name:
        ipython = sys.modules.get("IPython")
        shell = None if ipython is None else ipython.get_ipython()
        cell = None if shell is None else shell.compile.format_code_name(name)
        if cell is not None:
            return str(cell[1])
    return name.replace("\\", "/").rsplit("/", 1)[-1]


def site_text(code: CodeType | None, lasti: int) -> str:
    """``file.py:12`` (``In[3]:2`` in a notebook), from code and the offset of an instruction; "" if there is none."""
    if code is None:
        return ""
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= lasti < end and number is not None:
            line = number
            break
    return f"{file_text(code.co_filename)}:{line}"


def line_of(frame: FrameType) -> str:
    """``file.py:12`` of the innermost frame, from this one outwards, that is in no library; of this one if all are."""
    found: FrameType | None = frame
    while found is not None and found.f_code.co_filename.startswith(library_folders()):
        found = found.f_back
    found = found or frame
    return f"{file_text(found.f_code.co_filename)}:{found.f_lineno}"


@cache
def library_folders() -> tuple[str, ...]:
    """Return how the paths of files begin that belong to stf, to Python or to an installed package."""
    import sysconfig

    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    installed = {sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")}
    return (here, *sorted(installed), "<frozen")
