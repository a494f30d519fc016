"""The files of a checkpoint: a folder with one .npy for each data, and an index in JSON.

A program may be killed at any point, and a checkpoint may take the place of an older one in the same folder. A folder
that has content cannot be exchanged in one step, but a file can. So the index decides::

    write the arrays, under new names ──▶ fsync ──▶ exchange the index ──▶ remove the arrays of before
     └── killed here: the old index ───────────┘     └── killed here: the new index names the new arrays
         names the old arrays, which are there

Each file has its crc32 in the index, and the index has its own. NumPy can read the arrays without stf: types that it
lacks, such as bfloat16, are unsigned integers there.

Tried instead: one archive, which would be exchanged in one step. Its arrays cannot be written side by side.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
import weakref
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from stf._support.whole_file import whole_file
from stf.interop.dtypes import NARROW, carrier, is_narrow, narrow

__all__ = ["Content", "Writer", "check_dtype", "json_of", "newest_in", "read_arrays", "read_index"]

FORMAT = 1
INDEX = "index.json"
OURS = re.compile(r".+-[0-9a-f]{16}\.npy|\.stf-[0-9a-f]{16}\.json")
CHUNK = 1 << 24  # bytes
lock = threading.Lock()  # one index at a time
at_work: weakref.WeakSet[Writer] = weakref.WeakSet()  # whose files stay while others write to the same folder


class Content:
    """One data of a checkpoint: its copy, until that is written, and what the index says of it.

    Parameters
    ----------
    name : str
    file : str
        Of its array, in the folder.
    """

    def __init__(self, name: str, file: str) -> None:
        self.name, self.file = name, file
        self.array: Any = None
        self.error: Exception | None = None  # why there is none
        self.entry: dict[str, Any] = {}


class Writer:
    """Writes a checkpoint: first `save` of each content, then `commit`.

    Parameters
    ----------
    folder : str
        It is made where it is not there.
    names : list of str
    extra : str
        JSON.
    """

    def __init__(self, folder: str, names: list[str], extra: str) -> None:
        self.folder, self.extra = Path(os.path.abspath(folder)), extra
        self.time_ns = time.time_ns()
        stamp = os.urandom(8).hex()
        self.contents = [Content(name, f"{readable(name)}-{n}-{stamp}.npy") for n, name in enumerate(names)]
        with lock:
            at_work.add(self)

    def save(self, content: Content) -> None:
        """Write the array of a content to the disk; `commit` raises what goes wrong."""
        if content.error is None:
            try:
                self.write(content)
            except Exception as error:
                content.error = error

    def write(self, content: Content) -> None:
        """Write the array of a content to the disk, and give its memory up."""
        array, content.array = content.array, None
        path = self.folder / content.file
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("xb") as file:
                summed = Summed(file)
                np.lib.format.write_array(summed, array.view(carrier(array.dtype)), allow_pickle=False)
                to_disk(file)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        content.entry = {
            "name": content.name,
            "file": content.file,
            "dtype": described(array.dtype),
            "shape": list(array.shape),
            "crc32": summed.crc32,
        }

    def commit(self) -> None:
        """Exchange the index, and remove the arrays of the checkpoint before; raise why there is none."""
        with lock:
            try:
                for content in self.contents:
                    if content.error is not None:
                        raise content.error
                self.exchange()
            finally:
                at_work.discard(self)

    def exchange(self) -> None:
        sync_folder(self.folder)
        body = {
            "format": FORMAT,
            "versions": {"numpy": np.__version__},
            "time_ns": self.time_ns,
            "data": [content.entry for content in self.contents],
            "extra": json.loads(self.extra),
        }
        with whole_file(self.folder / INDEX) as partial, partial.open("w", encoding="utf-8") as file:
            json.dump({**body, "crc32": crc_of(body)}, file, indent=1)
            to_disk(file)
        sync_folder(self.folder)
        sync_folder(self.folder.parent)
        mine = {content.file for writer in at_work for content in writer.contents}
        for path in self.folder.iterdir():
            if OURS.fullmatch(path.name) and path.name not in mine:
                with contextlib.suppress(OSError):  # what nobody names is in nobody's way
                    path.unlink()


class Summed:
    """A file that keeps the crc32 of what is written to it."""

    def __init__(self, file: Any) -> None:
        self.file, self.crc32 = file, 0

    def write(self, block: Any) -> int:
        self.crc32 = zlib.crc32(block, self.crc32)
        return self.file.write(block)


# -- reading -------------------------------------------------------------------------------------------------------


def newest_in(folder: str) -> str:
    """Return the folder of the newest checkpoint among those in `folder`.

    Raises
    ------
    FileNotFoundError
        There is none.
    ValueError
        The index of one is damaged, so that nobody knows how old it is.
    """
    indices = sorted(Path(folder).glob(f"*/{INDEX}"))
    if not indices:
        raise FileNotFoundError(
            f"there is no checkpoint in a folder of {folder}: ctx.checkpoint(path) writes one; latest=True looks for "
            f"{os.path.join(folder, '*', INDEX)}"
        )
    return str(max((read_index(str(path.parent))["time_ns"], str(path.parent)) for path in indices)[1])


def read_index(folder: str) -> dict[str, Any]:
    """Return what the index says.

    Raises
    ------
    FileNotFoundError
        There is none.
    ValueError
        It is damaged, or of another format.
    """
    path = Path(folder) / INDEX
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} is no checkpoint: it has no {INDEX}; pass the path that ctx.checkpoint was given, or "
            "latest=True with the folder around several"
        )
    try:
        index = json.loads(path.read_bytes())
        expected = index.pop("crc32")
        found = crc_of(index)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, f"its text cannot be read ({error})") from None
    if found != expected:
        raise damaged(path, f"its crc32 is {found}, and {expected} was written")
    if index.get("format") != FORMAT:
        raise ValueError(
            f"{folder} is a checkpoint of format {index.get('format')}, and this version of stf reads format {FORMAT}; "
            "read it with the version that wrote it"
        )
    return dict(index)


def read_arrays(folder: str, entries: list[dict[str, Any]]) -> list[Any]:
    """Return the arrays of these entries of an index; ValueError if one is damaged."""
    return [read_array(Path(folder) / entry["file"], entry) for entry in entries]


def read_array(path: Path, entry: dict[str, Any]) -> Any:
    label = f"the content of '{entry['name']}'"
    found = 0
    try:
        with path.open("rb") as file:
            while block := file.read(CHUNK):
                found = zlib.crc32(block, found)
    except FileNotFoundError:
        raise damaged(path, f"{label} is missing") from None
    if found != entry["crc32"]:
        raise damaged(path, f"{label} has crc32 {found}, and {entry['crc32']} was written")
    array = np.load(path, allow_pickle=False)
    if isinstance(entry["dtype"], str) and entry["dtype"] in NARROW:
        array = array.view(narrow(entry["dtype"]))
    if described(array.dtype) != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise damaged(path, f"{label} is {array.dtype} of shape {array.shape}, and the index says otherwise")
    return array


def damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"{path} is damaged: {why}; restore another checkpoint")


# -- words that both share -----------------------------------------------------------------------------------------


def json_of(extra: Any) -> str:
    """Return the JSON of what comes back as it is; TypeError, with its path, for a value that would not."""
    check_plain(extra, "extra")
    return json.dumps(extra)


def check_plain(value: Any, where: str) -> None:
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(
                    f"the keys of {where} are text, since it is kept as JSON, got {key!r}; use {str(key)!r}"
                )
            check_plain(item, f"{where}[{key!r}]")
    elif kind is list:
        for i, item in enumerate(value):
            check_plain(item, f"{where}[{i}]")
    elif value is not None and kind not in (bool, int, float, str):
        hint = {tuple: "use a list", np.ndarray: "use logical data, or its tolist()"}.get(kind)
        hint = hint or ("use its item()" if isinstance(value, np.generic) else "convert it to one of these")
        raise TypeError(
            f"{where} is kept as JSON, which has None, bool, int, float, str, list and dict, got {kind.__name__} "
            f"{value!r}; {hint}"
        )


def check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    """Raise TypeError for elements that a .npy file would give back as another type."""
    if not is_narrow(dtype) and np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype)) != dtype:
        raise TypeError(f"'{name}' has elements of {dtype}, which no .npy file can hold; save a view of it as uint8")


def described(dtype: np.dtype[Any]) -> Any:
    """Return a dtype as JSON has it: the name of a narrow one, else what a .npy file says of it."""
    return dtype.name if is_narrow(dtype) else json.loads(json.dumps(np.lib.format.dtype_to_descr(dtype)))


def crc_of(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def readable(name: str) -> str:
    """Return the start of a file's name: as much of the data's name as each file system takes."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)[:40] or "data"


def to_disk(file: Any) -> None:
    """Wait until what was written to a file is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; other systems than POSIX cannot say so."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
