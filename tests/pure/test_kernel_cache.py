"""Compiled kernels on disk: what is kept, for whom, and for how long."""

from __future__ import annotations

import itertools
import os
import pickle
import stat
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stf
from stf import config
from stf.kernels.compile import cache, nvrtc

OWN_FILE = {"st_uid": os.getuid(), "st_mode": stat.S_IFREG | 0o600}

KEY, OTHER, THIRD, LAST = (cache.key_of([name]) for name in ("a kernel", "another", "a third", "the last"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    config.reload(os.environ | {"STF_CACHE_DIR": str(tmp_path)})
    yield tmp_path / "kernels"
    config.reload()


def test_content_is_found_again_in_a_private_folder(folder: Path) -> None:
    key = cache.key_of(("a source", (9, 0)))
    assert cache.load(key) is None
    cache.store(key, b"machine code")
    assert cache.load(key) == b"machine code"
    assert cache.load(cache.key_of(("a source", (9, 1)))) is None
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path, _ in cache.files()] == [key]


def test_a_file_that_is_not_whole_is_not_used(folder: Path) -> None:
    cache.store(KEY, b"machine code")
    (folder / KEY).write_bytes((folder / KEY).read_bytes()[:-1])
    assert cache.load(KEY) is None
    cache.store(KEY, b"machine code")
    assert cache.load(KEY) == b"machine code"


def test_a_folder_that_others_may_write_to_is_not_used(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="stf")
    cache.store(KEY, b"machine code")
    folder.chmod(0o777)
    assert cache.load(KEY) is None
    cache.store(OTHER, b"machine code")
    assert not (folder / OTHER).exists()
    assert "others can write to" in caplog.text


def test_a_folder_below_one_that_others_may_write_to_is_not_used(folder: Path) -> None:
    cache.store(KEY, b"machine code")
    folder.parent.chmod(0o777)
    assert cache.load(KEY) is None
    folder.parent.chmod(0o1777)  # where only its owner may rename a folder
    assert cache.load(KEY) == b"machine code"


@pytest.mark.parametrize("changed", [{"st_uid": os.getuid() + 1}, {"st_mode": stat.S_IFREG | 0o622}])
def test_a_file_of_another_user_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, int]
) -> None:
    """Nor one that others can write to: it was put there when the folder was open."""
    cache.store(KEY, b"machine code")
    monkeypatch.setattr(os, "fstat", lambda file: types.SimpleNamespace(**{**OWN_FILE, **changed}))
    assert cache.load(KEY) is None
    monkeypatch.undo()
    assert cache.load(KEY) == b"machine code"


lines = itertools.count(1)


def doubled(body: Any) -> list[float]:
    """What a loop leaves that nothing is known of but what is on disk: it stands on another line each time."""
    body = types.FunctionType(body.__code__.replace(co_firstlineno=next(lines)), body.__globals__)
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.arange(3.0))
        ctx.parallel_for(x.shape, x.rw())(body)
        found: list[float] = x.numpy().tolist()
        return found


def double(i: int, x: np.ndarray) -> None:
    x[i] *= 2


def test_a_kernel_that_cannot_be_rebuilt_is_compiled_anew(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("numba")
    caplog.set_level("INFO", logger="stf")
    assert doubled(double) == [0, 2, 4]
    (path,) = [path for path, _ in cache.files()]
    for wrong in (b"no pickle", pickle.dumps(("of", "another", "release"))):
        cache.store(path.name, wrong)
        assert doubled(double) == [0, 2, 4] and path.stat().st_size > 1000
    assert caplog.text.count("is of no use") == 2
    assert doubled(double) == [0, 2, 4] and caplog.text.count("is of no use") == 2


def test_a_kernel_among_variables_that_cannot_be_pickled_is_not_kept(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("numba")
    caplog.set_level("INFO", logger="stf")
    namespace: dict[str, Any] = {"lock": threading.Lock()}
    exec("def double(i, x):\n    x[i] *= 2\n", namespace)
    assert doubled(namespace["double"]) == [0, 2, 4]
    assert cache.files() == [] and "a compiled kernel is not kept: " in caplog.text


def test_files_of_others_stay(folder: Path) -> None:
    cache.store(KEY, b"machine code")
    (folder / "notes.txt").write_text("mine")
    (folder / "more").mkdir()
    config.cache_size = 100
    cache.store(OTHER, bytes(60))
    assert [path.name for path, _ in cache.files()] == [OTHER]
    assert cache.clear() == 1
    assert {path.name for path in folder.iterdir()} == {"notes.txt", "more"}


def test_what_is_larger_than_the_cache_leaves_the_rest(folder: Path) -> None:
    config.cache_size = 100
    cache.store(KEY, bytes(60))
    cache.store(OTHER, bytes(101))
    assert cache.load(KEY) is not None and cache.load(OTHER) is None


def test_a_user_without_a_home_has_no_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def expanduser(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", expanduser)
    cache.store(KEY, b"machine code")
    assert cache.load(KEY) is None and cache.files() == []


def test_what_was_used_longest_ago_goes_first(folder: Path) -> None:
    config.cache_size = 3 * (1000 + cache.DIGEST)
    for age, key in enumerate((KEY, OTHER, THIRD)):
        cache.store(key, bytes(1000))
        os.utime(folder / key, (age, age))
    assert cache.load(KEY) is not None
    cache.store(LAST, bytes(1000))
    assert {path.name for path, _ in cache.files()} == {KEY, THIRD, LAST}


def test_a_size_of_zero_keeps_nothing(folder: Path) -> None:
    config.cache_size = 0
    cache.store(KEY, b"machine code")
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="stf")
    folder.touch()
    cache.store(KEY, b"machine code")
    assert cache.load(KEY) is None and "are not kept" in caplog.text


def test_the_page_shows_and_clears_it(folder: Path) -> None:
    def page(*options: str) -> str:
        command = [sys.executable, "-m", "stf", "cache", *options]
        environment = os.environ | {"STF_CACHE_DIR": str(folder.parent)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    cache.store(KEY, b"machine code")
    assert page().startswith("1 compiled kernels, 44 bytes of")
    assert page("--clear").startswith("1 compiled kernels removed")
    assert page().startswith("0 compiled kernels")


def test_a_source_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def compile_it(source: str, options: list[bytes]) -> bytes:
        compiled.append(options)
        return source.encode()

    monkeypatch.setattr(nvrtc, "compiler", lambda: ("a release", [75, 90], compile_it))
    for _ in range(2):
        assert nvrtc.compile_cpp("source", (9, 0), ("-fmad=false",)) == b"source"
    assert compiled == [[b"-arch=sm_90", b"-fmad=false"]]
    assert nvrtc.compile_cpp("source", (10, 0)) == b"source"
    assert compiled[1:] == [[b"-arch=compute_90"]]  # PTX, which the driver of a newer device compiles


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs.nvrtc", None)
    with pytest.raises(ImportError, match="pip install"):
        nvrtc.compile_cpp("source", (9, 0))


KERNEL = """
import math, sys
import numpy as np, stf

with stf.context(devices="cpu") as ctx:
    a, x = ctx.logical_data(np.arange(9.0).reshape(3, 3)), ctx.logical_data_ones(3)

    @ctx.parallel_for(x.shape, a.read(), x.rw())
    def body(i, a, x):
        x[i] += {term}

    print(x.numpy().sum(), "numba.np.arraymath" in sys.modules)
"""


@pytest.mark.parametrize("term", ["a[i, 0]", "math.erf(a[i, 0]) + a[i, 0] ** 0.5", "np.dot(a[i], a[0])"])
def test_a_second_process_loads_a_kernel_without_all_of_numba(tmp_path: Path, term: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL.format(term=term))
    found = []
    for _ in range(2):
        environment = os.environ | {"STF_CACHE_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment, timeout=100)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split())
    assert found == [[found[0][0], "True"], [found[0][0], "False"]]
