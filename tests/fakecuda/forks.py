"""Runs scripts in forks of a process that has imported what each of them would import first.

A script starts in a tenth of a second then, not in one. The fork has no threads, and has not looked for CUDA yet.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import types
from pathlib import Path

TIMEOUT_S = 60


class Forks:
    """The process that forks, as the tests see it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, script: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a script in its folder, as ``subprocess.run`` would."""
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps([str(script), environment]) + "\n")
        self.server.stdin.flush()
        code = json.loads(self.server.stdout.readline())
        texts = [script.with_suffix(suffix).read_text() for suffix in (".out", ".err")]
        if code is None:
            raise subprocess.TimeoutExpired(str(script), TIMEOUT_S, *texts)
        return subprocess.CompletedProcess([str(script)], code, *texts)

    def close(self) -> None:
        """End the process."""
        self.server.communicate()


def exit_code(pid: int) -> int | None:
    """Wait for a fork, and return its code as subprocess does; None if it took too long."""
    done, _, _ = select.select([handle := os.pidfd_open(pid)], [], [], TIMEOUT_S)
    os.close(handle)
    if not done:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if done else None


def become(script: Path, environment: dict[str, str]) -> str:
    """Make this process one that runs a script; return its source."""
    os.chdir(script.parent)
    for number, suffix in ((1, ".out"), (2, ".err")):
        handle = os.open(script.with_suffix(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(script)]
    sys.path[:1] = [str(script.parent), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.modules["__main__"].__file__ = str(script)
    return script.read_text()


if __name__ == "__main__":
    import numpy  # noqa: F401
    import pytest  # noqa: F401

    with contextlib.suppress(ImportError):
        import cuda.bindings.driver  # noqa: F401
    for line in iter(sys.stdin.readline, ""):  # a line each, and nothing read ahead that forks would inherit
        path, variables = json.loads(line)
        if (fork := os.fork()) == 0:
            break
        print(json.dumps(exit_code(fork)), flush=True)
    else:
        sys.exit()
    source = become(Path(path), variables)
    exec(compile(source, path, "exec"), vars(sys.modules["__main__"]))
