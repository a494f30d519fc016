"""Launches on CUDA's default streams: by which thread, and on what line.

Used under ``STF_VALIDATE=1`` alone. A source tells of each launch of the process, whichever library makes it; whoever
watches a thread is given those of that thread. `CuptiLaunches` is the source of every program. Its one method is an
interface of ours: tests put a source of their own there, and nothing in place of CUPTI.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from stf._support.call_sites import line_of
from stf.interop.dlpack import DEFAULT_STREAMS

log = logging.getLogger("stf")

DRIVER_API = 1  # CUPTI_CB_DOMAIN_DRIVER_API
ENTER = 0  # CUPTI_API_ENTER
NUMBERS = range(1, 2000)  # of the driver's functions; those that there are have names
SONAMES = ("libcupti.so.13", "libcupti.so.12")

# Where the stream is in the arguments of a call, by bytes; of cuLaunchKernelEx, in what the first of them points to.
STREAM_AT = {"cuLaunchKernel": 40, "cuLaunchCooperativeKernel": 40, "cuGraphLaunch": 8}
STREAM_IN_CONFIG = {"cuLaunchKernelEx": 32}


class CallbackData(ctypes.Structure):
    """The beginning of ``CUpti_CallbackData``."""

    _fields_ = (("site", ctypes.c_int), ("name", ctypes.c_char_p), ("arguments", ctypes.c_void_p))


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(CallbackData))


class Watch:
    """The lines on which a thread launched on a default stream, from `begin` to `end`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.thread = 0

    def begin(self) -> None:
        """Watch the calling thread; of several that do, the last one is told."""
        if self.thread == 0 and subscription.is_there():
            self.thread = threading.get_ident()
            others = [known for known in subscription.watches.get(self.thread, ()) if known() is not None]
            subscription.watches[self.thread] = [*others, weakref.ref(self)]

    def end(self) -> None:
        """Watch no longer. Who forgets the watch need not end it."""
        others = [known for known in subscription.watches.get(self.thread, ()) if known() not in (None, self)]
        if others:
            subscription.watches[self.thread] = others
        else:
            subscription.watches.pop(self.thread, None)
        self.thread = 0


class Source(Protocol):
    """What tells of launches."""

    def begin(self, told: Callable[[int], None]) -> str | None:
        """Have a thread call `told(stream)` as it enters a launch; return why that cannot be, or None."""


class Subscription:
    """Who watches which thread; the source tells from the first watch until the process exits."""

    def __init__(self, source: Source) -> None:
        self.watches: dict[int, list[weakref.ref[Watch]]] = {}
        self.source = source
        self.is_told: bool | None = None  # not known before somebody asks
        self.lock = threading.Lock()

    def is_there(self) -> bool:
        """Return whether the source tells; who asks first has it do so from now on."""
        if self.is_told is None:
            with self.lock:
                if self.is_told is None:
                    why = self.source.begin(self.tell)
                    self.is_told = why is None
                    if why is not None:
                        log.warning("STF_VALIDATE=1 does not see launches on CUDA's default streams: %s", why)
        return self.is_told

    def tell(self, stream: int) -> None:
        """Note the line, if this thread is watched and the stream is a default one."""
        try:
            watches = self.watches.get(threading.get_ident())
            if watches and stream in DEFAULT_STREAMS:
                watch = next((found for known in reversed(watches) if (found := known()) is not None), None)
                if watch is not None:
                    watch.lines.append(line_of(sys._getframe(1)))
        except KeyboardInterrupt:  # which would end here: it is for whoever launches
            _thread.interrupt_main()


class CuptiLaunches:
    """Tells of launches by CUPTI's callbacks, of which a process has one subscriber."""

    def __init__(self) -> None:
        self.callback = CALLBACK(self.called)

    def begin(self, told: Callable[[int], None]) -> str | None:
        """Subscribe; return why that cannot be, or None."""
        self.told = told
        library = load()
        if library is None:
            return f"there is no CUPTI ({SONAMES[0]}), which comes with CUDA's toolkit and as nvidia-cuda-cupti"
        handle = ctypes.c_void_p()
        code = library.cuptiSubscribe(ctypes.byref(handle), self.callback, None)
        if code:
            return f"{message_of(library, code)}; a profiler may hold CUPTI"
        name = ctypes.c_char_p()
        for number in NUMBERS:
            if library.cuptiGetCallbackName(DRIVER_API, number, ctypes.byref(name)) == 0:
                base = (name.value or b"").decode().removesuffix("_ptsz")
                if base in STREAM_AT or base in STREAM_IN_CONFIG:
                    code = code or library.cuptiEnableCallback(1, handle, DRIVER_API, number)
        if code:
            library.cuptiUnsubscribe(handle)
            return message_of(library, code)
        atexit.register(library.cuptiUnsubscribe, handle)
        return None

    def called(self, _user: Any, _domain: int, _number: int, data: Any) -> None:
        """Called by CUPTI as a thread enters a launch, and as it leaves it."""
        if data.contents.site == ENTER:
            self.told(stream_of(data.contents))


subscription = Subscription(CuptiLaunches())


def is_watched() -> bool:
    """Return whether somebody watches the calling thread."""
    return threading.get_ident() in subscription.watches


def stream_of(data: Any) -> int:
    """Return the stream of a launch, as CUDA's driver is given it."""
    name, arguments = data.name.decode().removesuffix("_ptsz"), data.arguments
    if name in STREAM_IN_CONFIG:
        arguments = ctypes.c_uint64.from_address(arguments).value
        return ctypes.c_uint64.from_address(arguments + STREAM_IN_CONFIG[name]).value
    return ctypes.c_uint64.from_address(arguments + STREAM_AT[name]).value


def message_of(library: Any, code: int) -> str:
    """Return what CUPTI says of an error."""
    text = ctypes.c_char_p()
    library.cuptiGetResultString(code, ctypes.byref(text))
    return (text.value or b"CUPTI's error %d" % code).decode()


def load() -> Any:
    """CUPTI's library, or None: where the loader finds it, or where CUDA's own packages or toolkit have it."""
    folders = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)] + ["/usr/local/cuda"]
    paths = [f"{folder}/{part}/libcupti.so" for folder in folders for part in ("lib64", "extras/CUPTI/lib64")]
    for path in (*SONAMES, *packaged(), *paths):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def packaged() -> list[str]:
    """Return where the package of CUPTI's has it, if there is one."""
    try:
        from cuda import pathfinder

        path = pathfinder.load_nvidia_dynamic_lib("cupti").abs_path
    except (ImportError, AttributeError, RuntimeError, ValueError):  # no such package; none that is known by this name
        return []
    return [path] if path else []
