"""Tracebacks that end at the user's line: what Python and IPython show of an error is without the frames of stf.

Frames of stf say nothing to who made a mistake, and a compiled one has no source to show. So the hook that prints an
error leaves them out, wherever they stand: behind the user's call, and before the user's body. The error itself is
as it was for whoever catches it. ``STF_FULL_TRACEBACK=1`` shows all.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from stf import config
from stf._support.call_sites import file_text, library_folders


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of stf; None if there are no others."""
    frames = []
    step = trace
    while step is not None:
        if not is_ours(step):
            frames.append(step)
        step = step.tb_next
    kept: TracebackType | None = None
    for item in reversed(frames):
        kept = TracebackType(kept, item.tb_frame, item.tb_lasti, item.tb_lineno)
    return kept


def is_ours(step: TracebackType) -> bool:
    """Return whether an entry of a traceback is code of stf, compiled or not."""
    return str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == "stf"


def raised_at(error: BaseException | None) -> str:
    """Return ``file.py:12`` of the innermost line that is in no library, else of the innermost that is not ours.

    "" if the error was raised nowhere that Python knows.
    """
    step = None if error is None else error.__traceback__
    found = ""
    is_own = False  # the program's own code
    while step is not None:
        path = step.tb_frame.f_code.co_filename
        is_library = path.startswith(library_folders())
        if not is_ours(step) and not (is_library and is_own):
            found, is_own = f"{file_text(path)}:{step.tb_lineno}", not is_library
        step = step.tb_next
    return found


def trim(error: BaseException | None) -> None:
    """Leave the frames of stf out of an error's traceback, and of those that it came from.

    An error of stf's own code, on no line of the user's, keeps them; what a task failed with says enough in its text.
    """
    seen: set[int] = set()
    errors = [error]
    whole = None if error is None else error.__traceback__
    while errors:
        each = errors.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = without_ours(each.__traceback__)
        errors += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            errors += each.exceptions
    if error is not None:
        error.__traceback__ = error.__traceback__ or whole


def install() -> None:
    """Have errors that nobody catches shown without the frames of stf."""
    before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        if not config.full_traceback:
            trim(error)
            trace = without_ours(trace) or trace
        before(kind, error, trace)

    sys.excepthook = show


def install_in_notebook() -> None:
    """The same where IPython shows errors; nothing if that does not run, or somebody else has a handler there."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or shell.custom_exceptions:
        return

    def show(shell: Any, kind: Any, error: BaseException, trace: TracebackType, tb_offset: Any = None) -> None:
        if not config.full_traceback:
            trim(error)
            trace = error.__traceback__ or trace
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)

    shell.set_custom_exc((Exception,), show)
