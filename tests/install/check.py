"""What is tried of an installed stf, in an environment that has nothing else: no test library, no source tree.

python tests/install/check.py README.md [--uncompiled]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import stf
from stf._support import loader


def check_readme(readme: Path) -> None:
    """The first program of the README prints what it says."""
    program = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)[0]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program, {"__name__": "__main__"})
    assert printed.getvalue() == "5.0\n", printed.getvalue()


def check_kernels() -> None:
    """Kernels in Python are compiled, by Numba; reductions and replays work."""
    x = np.arange(1000.0)
    with stf.context(devices="cpu:2") as ctx:
        lX, lS = ctx.logical_data(x), ctx.logical_data_zeros(())
        scale = 2.0

        @ctx.parallel_for(lX.shape, lX.rw())
        def double(i, x):
            x[i] *= scale

        @ctx.parallel_for(lX.shape, lX.read(), lS.reduce(stf.reducer.sum))
        def total(i, x):
            return x[i]

        assert float(lS) == 999 * 1000


def check_compiled(wanted: bool) -> None:
    """The engine is compiled where a compiler was at hand."""
    compiled = loader.compiled_modules()
    assert compiled and all(done for name, done in compiled.items() if "cuda" not in name) == wanted, compiled


def check_command() -> None:
    done = subprocess.run([sys.executable, "-m", "stf"], capture_output=True, text=True, check=True)
    assert "Settings" in done.stdout and not done.stderr, done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readme", type=Path)
    parser.add_argument("--uncompiled", action="store_true", help="it was installed without a compiler")
    options = parser.parse_args()
    check_compiled(not options.uncompiled)
    check_readme(options.readme)
    check_kernels()
    check_command()
    form = "uncompiled" if options.uncompiled else "compiled"
    print(f"stf {stf.__version__}, {form}, Python {sys.version.split()[0]}, from {Path(stf.__file__).parent}: all well")


if __name__ == "__main__":
    main()
