"""What errors that array libraries raise in bodies mean."""

from __future__ import annotations

from typing import Any

from stf.errors import CaptureError, DriverError

SIGNS_OF_CAPTURE = (  # in errors of CUDA, CuPy, torch and Numba
    "is capturing",
    "stream capture",
    "streamcapture",
    "cuda graph capture",
    "captures underway",
    "not in capture mode",
)
LIBRARIES_THAT_CAPTURE = ("cupy", "cupy_backends", "torch", "numba", "cuda", "triton")


def is_uncapturable(task: Any, error: Exception) -> bool:
    """Return whether an error of a body says that a call cannot be captured, as CUDA and libraries put it."""
    engine = task.engine
    return engine.scope.records and engine.places[task.where].enqueues and tells_of_capture(error)


def tells_of_capture(error: BaseException | None) -> bool:
    """Return whether CUDA or a library says that a call cannot be captured."""
    if not isinstance(error, Exception):
        return False
    library = type(error).__module__.partition(".")[0]
    if type(error) not in (RuntimeError, NotImplementedError, DriverError) and library not in LIBRARIES_THAT_CAPTURE:
        return False
    try:
        description = str(error).lower().replace("_", " ")
    except Exception:  # an error of someone's that cannot say what it is
        return False
    return any([sign in description for sign in SIGNS_OF_CAPTURE])


def uncapturable(task: Any, error: Exception) -> CaptureError:
    """Return what is raised for such an error of a task's body."""
    return CaptureError(
        f"task {task.label()} ({task.call_site}) cannot be recorded: it waits for the device, moves data to or from "
        f"the host, or calls what its library does not capture ({error}). Leave it out of the graph, or let it enqueue "
        "all its work on the task's stream"
    )


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether a library says that there is no more memory of its device.

    CuPy and torch have types of that name.
    """
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
