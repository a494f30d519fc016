"""The environment variables of stf, read once at import; a malformed one is an error of the first context.

Each setting is an attribute of this module, which a program may assign: ``config.devices`` is ``STF_DEVICES``. Those of
the task graph's picture are read from ``CUDASTF_DOT_…`` too, and so is ``CUDASTF_ALGORITHM_INLINE``; where both are
set, ``STF_…`` wins. An empty variable counts as unset.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SETTINGS", "Setting", "check", "reload", "show"]


@dataclass
class Setting:
    """One environment variable.

    Attributes
    ----------
    name : str
        The attribute of this module.
    kind : str
        ``"text"``, ``"flag"``, ``"count"``, ``"integer"``, ``"bytes"`` or ``"capacity"``.
    default : object
        The value where the variable is not set.
    description : str
        What it does, in one line.
    value : object
        The value now.
    source : str
        ``"default"`` or ``"environment"``.
    """

    kind: str
    default: Any
    description: str
    name: str = field(default="", init=False)
    value: Any = field(default=None, init=False)
    source: str = field(default="default", init=False)

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return f"STF_{self.name.upper()}"

    @property
    def variables(self) -> tuple[str, ...]:
        """Every variable that sets it, the first one that is set wins."""
        is_known_to_cudastf = self.name.startswith("dot_") or self.name == "algorithm_inline"
        return (self.variable, f"CUDA{self.variable}") if is_known_to_cudastf else (self.variable,)

    def read(self, environment: Mapping[str, str]) -> None:
        """Take the value from `environment`; ValueError if it is malformed."""
        self.value, self.source = self.default, "default"
        for variable in reversed(self.variables):
            text = environment.get(variable, "").strip()
            if text:
                self.value, self.source = _parse(variable, self.kind, text), "environment"


def _setting(kind: str, default: Any, description: str) -> Any:
    """Declare a setting; to type checkers it is what its value is."""
    return Setting(kind, default, description)


devices: str | None = _setting(
    "text", None, "devices of a context: cuda, cuda:0,2, cpu, cpu:4; unset: all GPUs, or this CPU"
)
pure: bool = _setting("flag", False, "load every module of stf from its .py, uncompiled")
blocking: bool = _setting("flag", False, "run each task inside the call that submits it")
validate: bool = _setting("flag", False, "check the engine after each step, and what the bodies do to their data")
nan: bool = _setting("flag", False, "fail the first task that writes a NaN or an infinity which its inputs had not")
capsule: str | None = _setting("text", None, "folder for tasks that fail, each in a file that runs alone; unset: none")
cpu_workers: int | None = _setting("count", None, "threads of the CPU driver; unset: the usable cores")
limit_blas: bool = _setting(
    "flag", True, "share the cores among the workers in BLAS and OpenMP; 0: in each body these have all cores"
)
memory_limit: int | None = _setting("bytes", None, "bytes per device beyond which replicas are evicted, such as 2GiB")
max_pending: int | None = _setting("count", None, "tasks in flight before submission waits")
graph_cache: int = _setting(
    "capacity", 512 << 20, "bytes of executable CUDA graphs to keep for others of the same shape; 0: none"
)
algorithm_inline: bool = _setting("flag", False, "run every stf.algorithm inline, without graphs")
conditional_nodes: bool = _setting(
    "flag",
    True,
    "decide loops and branches on the GPU, in the graph; 0: on the host, for tools that know no conditional nodes",
)
host_pool: bool = _setting(
    "flag", True, "pool the host's memory for data on GPUs; 0: for tools that know no such pools"
)
reuse_devices: bool = _setting(
    "flag",
    True,
    "threads of a context are the next one's, on GPUs its streams and memory pools, too; 0: given back at its end",
)
hostile: int | None = _setting(
    "integer", None, "seed that makes the CPU driver shuffle and delay what the rules leave open"
)
submit_thread: bool | None = _setting(
    "flag", None, "a thread that gives work to CUDA: 1 always, 0 never; unset: in bursts"
)
submit_threads: bool = _setting(
    "flag", False, "a thread for each of several GPUs calls the bodies of its tasks; as the option of a context"
)
nvtx: bool | None = _setting(
    "flag", None, "ranges named after tasks for profilers: 1 always, 0 never; unset: when one listens"
)
placement: str | None = _setting(
    "text", None, "record:FILE keeps which places are chosen for tasks, replay:FILE repeats them"
)
full_traceback: bool = _setting("flag", False, "show the frames of stf, too, in errors that nobody catches")
cache_dir: str | None = _setting("text", None, "folder for compiled kernels; unset: stf in XDG_CACHE_HOME or ~/.cache")
cache_size: int = _setting("capacity", 256 << 20, "bytes of compiled kernels to keep on disk; 0: none")
dot_file: str | None = _setting("text", None, "file that the task graph is written to, in DOT")
dot_ignore_prereqs: bool = _setting("flag", True, "leave out copies and allocations")
dot_color_by_device: bool = _setting("flag", False, "color tasks by device")
dot_remove_data_deps: bool = _setting("flag", False, "leave the data out of the tasks' labels")
dot_timing: bool = _setting("flag", False, "measure tasks; color by duration and show the critical path")
dot_max_depth: int | None = _setting("integer", None, "collapse sections below this depth")
dot_show_fence: bool = _setting("flag", False, "show fences")
dot_keep_redundant: bool = _setting("flag", False, "keep edges that others imply")
dot_stats_file: str | None = _setting(
    "text", None, "file for the counts of tasks and edges, total work and critical path"
)
dot_keep_freeze: bool = _setting("flag", False, "show freezes and unfreezes")


def _declared() -> tuple[Setting, ...]:
    """Return the settings above, each of which learns its name."""
    found = {name: value for name, value in globals().items() if isinstance(value, Setting)}
    for name, setting in found.items():
        setting.name = name
    return tuple(found.values())


SETTINGS: tuple[Setting, ...] = _declared()


def reload(environment: Mapping[str, str] | None = None) -> None:
    """Read the settings again, from `environment` instead of ``os.environ`` if given.

    Raises
    ------
    ValueError
        A variable is malformed. The settings stay as they were.

    Examples
    --------
    >>> from stf import config
    >>> config.reload({"STF_MEMORY_LIMIT": "2GiB"})
    >>> config.memory_limit
    2147483648
    >>> config.reload()
    """
    environment = os.environ if environment is None else environment
    before = [(s.value, s.source) for s in SETTINGS]
    try:
        for setting in SETTINGS:
            setting.read(environment)
    except ValueError:
        for setting, (value, source) in zip(SETTINGS, before, strict=True):
            setting.value, setting.source = value, source
        raise
    _publish()


def check() -> None:
    """Raise ValueError if a variable was malformed when stf was imported; it has its default value since.

    Raises
    ------
    ValueError
        A setting is malformed; the message says what it takes.

    Examples
    --------
    >>> stf.config.check()  # every STF_… variable was well formed
    """
    if _malformed:
        raise ValueError(_malformed[0])


def show() -> None:
    """Print each setting with its value and where the value is from."""
    rows = [(s.variable, _as_text(s.value), s.source, s.description) for s in SETTINGS]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[3]]))


class _Checked(types.ModuleType):
    """A module whose settings are checked when a program assigns them, as their variables are."""

    def __setattr__(self, name: str, value: Any) -> None:
        known = {setting.name: setting for setting in SETTINGS}
        if name in known:
            setting = known[name]
            value = setting.value = _checked(setting, value)
            setting.source = "program"
        elif not name.startswith("_") and name not in self.__dict__:
            raise AttributeError(f"stf.config has no setting {name!r}; it has {', '.join(known)}")
        super().__setattr__(name, value)


def _checked(setting: Setting, value: Any) -> Any:
    """Return a value that a program gives to a setting: what the variable takes as text, or what that means."""
    if value is None and setting.default is None:
        return None
    name, text = f"stf.config.{setting.name}", value
    if setting.kind == "text" and isinstance(value, os.PathLike):
        text = os.fspath(value)
    elif (
        setting.kind != "text"
        and hasattr(value, "__index__")
        and (setting.kind == "flag" or not isinstance(value, bool))
    ):
        text = str(int(value))
    if not isinstance(text, str):
        raise TypeError(f"{name} is {_PARSERS[setting.kind][1]}, got {value!r}")
    return _parse(name, setting.kind, text)


def _read_at_import() -> None:
    """Take what is well formed; `check` tells of the rest, since an import is no place for it."""
    malformed: list[str] = []
    for setting in SETTINGS:
        try:
            setting.read(os.environ)
        except ValueError as error:
            malformed.append(str(error))
    _publish(malformed)


def _publish(malformed: Sequence[str] = ()) -> None:
    """Make the settings attributes of this module."""
    globals().update({s.name: s.value for s in SETTINGS})
    _malformed[:] = malformed


def _parse(variable: str, kind: str, text: str) -> Any:
    parser, expected = _PARSERS[kind]
    try:
        return parser(text)
    except (KeyError, ValueError):
        unset = "" if variable.startswith("stf.") else ", or unset it"
        raise ValueError(f"{variable}={text!r} is malformed: set it to {expected}{unset}") from None


def _flag(text: str) -> bool:
    return _FLAGS[text.lower()]


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError
    return count


def bytes_of(text: str, least: int = 1) -> int:
    """Return the bytes that text such as 2GiB means; ValueError for what is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?", text.lower())
    if match is None:
        raise ValueError
    number, prefix, binary = match.groups()
    nbytes = int(float(number) * (1024 if binary else 1000) ** (" kmgt".index(prefix or " ")))
    if nbytes < least:
        raise ValueError
    return nbytes


def _as_text(value: object) -> str:
    if value is None:
        return "-"
    return str(int(value)) if isinstance(value, bool) else str(value)


_FLAGS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "text": (str, "text"),
    "flag": (_flag, "1 or 0"),
    "integer": (int, "an integer, such as 42"),
    "count": (_count, "a positive integer, such as 8"),
    "bytes": (bytes_of, "a number of bytes, such as 500000000, 512MiB or 2GiB"),
    "capacity": (functools.partial(bytes_of, least=0), "0, or a number of bytes, such as 512MiB"),
}
_malformed: list[str] = []

_read_at_import()
sys.modules[__name__].__class__ = _Checked
