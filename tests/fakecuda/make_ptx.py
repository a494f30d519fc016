"""Makes src/stf/kernels/scalars.ptx of scalars.cu, by nvcc: ``python tests/fakecuda/make_ptx.py [TARGET]``."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "stf" / "kernels" / "scalars.cu"
FLAGS = ["-ptx", "-arch=sm_75", "-fmad=false", "-O3"]


def made() -> str:
    """The text: for any device and driver that have what it uses, without what the compiler says of itself."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "scalars.ptx"
        subprocess.run(["nvcc", *FLAGS, str(SOURCE), "-o", str(target)], check=True)
        text = target.read_text()
    text = re.sub(r"^//.*\n|^\s*// .*\n", "", text, flags=re.M)
    text = re.sub(r"^\.version .*$", ".version 7.0", text, flags=re.M)
    text = re.sub(r"^\.target .*$", ".target sm_70", text, flags=re.M)
    release = re.search(r"release ([\d.]+)", subprocess.check_output(["nvcc", "--version"], text=True))
    head = f"// Made of scalars.cu by tests/fakecuda/make_ptx.py, nvcc {release[1] if release else '?'}\n"
    return head + re.sub(r"\n{2,}", "\n", text).lstrip()


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE.with_suffix(".ptx")).write_text(made())
