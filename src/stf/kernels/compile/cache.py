"""Compiled kernels on disk, so that a second process compiles nothing.

A file is named after everything that its content depends on. The folder is the user's alone, since what is read from it
runs: where another user could write to it, or put another one in its place, it is not used. A file is written under
another name and then renamed, so that no process reads half of one. Where the folder grows over its limit, the files
that were used longest ago go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from stf import config

__all__ = ["clear", "files", "folder", "key_of", "load", "store"]

SHARED = stat.S_IWGRP | stat.S_IWOTH
VERSION = 3  # to be raised when the same key stands for other machine code
DIGEST = 32  # bytes before the content that tell whether it is whole
OURS = re.compile(r"[0-9a-f]{64}(\.\w+)?")  # a key, or a file that becomes one
log = logging.getLogger("stf")


def folder() -> Path:
    """Return the folder: ``kernels`` in ``STF_CACHE_DIR``, or in ``stf`` in ``XDG_CACHE_HOME`` or ``~/.cache``.

    Raises
    ------
    RuntimeError
        The user has no home.
    """
    if config.cache_dir is not None:
        return Path(config.cache_dir).expanduser() / "kernels"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stf" / "kernels"


def key_of(parts: Iterable[object]) -> str:
    """Return a name for what is made of `parts`, by their texts."""
    return hashlib.sha256("\0".join(map(str, (VERSION, *parts))).encode()).hexdigest()


def load(key: str) -> bytes | None:
    """Return the content that was stored under a key; None if there is none."""
    try:
        if not config.cache_size or not is_private(folder()):
            return None
        path = folder() / key
        with path.open("rb") as file:
            if not is_ours(os.fstat(file.fileno())):
                return None  # it was put there when others could write to the folder
            text = file.read()
    except (OSError, RuntimeError):
        return None
    digest, content = text[:DIGEST], text[DIGEST:]
    if digest != hashlib.sha256(content).digest():
        return None  # the disk was full, or somebody has changed it
    with contextlib.suppress(OSError):
        os.utime(path)  # it was used last
    return content


def store(key: str, content: bytes) -> None:
    """Keep the content for other processes; a folder that cannot be written to is logged, and that is all."""
    if DIGEST + len(content) > config.cache_size:
        return
    try:
        target = folder()
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(target):
            log.info("compiled kernels are not kept: others can write to %s, or above it; set STF_CACHE_DIR", target)
            return
        descriptor, name = tempfile.mkstemp(dir=target, prefix=f"{key}.")
        try:
            with os.fdopen(descriptor, "wb") as partial:
                partial.write(hashlib.sha256(content).digest() + content)
            Path(name).replace(target / key)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        shrink()
    except (OSError, RuntimeError) as error:
        log.info("compiled kernels are not kept: %s", error)


def is_private(path: Path) -> bool:
    """Return whether a folder belongs to this user, and nobody else but root can write to it or exchange it."""
    try:
        here, *above = [parent.stat() for parent in (path, *path.absolute().parents)]
    except OSError:
        return False
    safe = [s.st_uid in (0, os.getuid()) and (not s.st_mode & SHARED or s.st_mode & stat.S_ISVTX) for s in above]
    return is_ours(here) and all(safe)


def is_ours(status: os.stat_result) -> bool:
    """Return whether a file or folder belongs to this user, and nobody else can write to it."""
    return status.st_uid == os.getuid() and not status.st_mode & SHARED


def files() -> list[tuple[Path, os.stat_result]]:
    """Return the files of the cache with what is known of them; the one that was used longest ago comes first."""
    found = []
    with contextlib.suppress(OSError, RuntimeError):
        for path in folder().iterdir():
            with contextlib.suppress(OSError):  # another process removed it
                if OURS.fullmatch(path.name) and path.is_file():
                    found.append((path, path.stat()))
    return sorted(found, key=lambda item: item[1].st_mtime)


def shrink() -> None:
    """Remove files until the folder is within its limit."""
    known = files()
    nbytes = sum(status.st_size for _, status in known)
    for path, status in known:
        if nbytes <= config.cache_size:
            break
        path.unlink(missing_ok=True)
        nbytes -= status.st_size


def clear() -> int:
    """Remove all files of the cache; return how many there were."""
    known = files()
    for path, _ in known:
        path.unlink(missing_ok=True)
    return len(known)
