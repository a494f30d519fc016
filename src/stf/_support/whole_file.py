"""Write a file whole or not at all: the one way in which reports, traces and pictures reach the disk.

The writer gets a path beside the file. When it is done, the new file takes the place of the old one in one step, so who
interrupts a program keeps the file of before, and a browser that reloads never sees a half. Files that are no regular
ones, such as a pipe or ``/dev/stdout``, cannot be exchanged and are written as they are. So is a file in a folder where
the user may not make another one.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_whole(path: str | Path, text: str, errors: str = "strict") -> Path:
    """Write text to a file as UTF-8; return its path."""
    from pathlib import Path

    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8", errors=errors)
    return Path(path)


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Give a path with the same suffix to write to; at the end of the block, the file takes the place of `path`.

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    IsADirectoryError
        `path` is a folder.
    """
    from pathlib import Path  # 5 ms, which `import stf` goes without

    target = Path(os.path.realpath(path))  # a link goes on to point to what it pointed to
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; pass the path of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} in; make it first")
    if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK | os.X_OK):
        yield target
        return
    partial = target.with_name(f".stf-{os.urandom(8).hex()}{target.suffix}")  # short, whatever the name is
    try:
        yield partial
        if target.exists():
            partial.chmod(stat.S_IMODE(target.stat().st_mode))
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
