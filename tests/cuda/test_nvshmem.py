"""Symmetric memory of nvshmem4py as data of tasks, and its transfers on their streams, in a process that is alone.

In a process of its own: NVSHMEM keeps a part of the device until the process ends.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import numpy as np
from cuda.core import Device
device = Device(0)
device.set_current()
import cupy
import nvshmem.core as nvshmem
import nvshmem.core.interop.cupy as symmetric
import stf

nvshmem.init(device=device, uid=nvshmem.get_unique_id(), rank=0, nranks=1, initializer_method="uid")
assert nvshmem.n_pes() == 1 and nvshmem.my_pe() == 0
N = 1000
source, target = symmetric.array((N,), dtype="float32"), symmetric.array((N,), dtype="float32")
source[...], target[...] = 0, 0
device.sync()
addresses = source.data.ptr, target.data.ptr


@stf.task(arrays="cupy")
def add(x: stf.ReadWrite, amount):
    x += amount


@stf.task(arrays="cupy")
def put(x: stf.Read, y: stf.ReadWrite, stream: stf.Stream):
    assert (x.data.ptr, y.data.ptr) == addresses  # where NVSHMEM knows them
    nvshmem.put(y, x, remote_pe=0, stream=stream)
    nvshmem.quiet(stream=stream)


@stf.task(arrays="cupy")
def reduce(x: stf.Read, y: stf.ReadWrite, stream: stf.Stream):
    nvshmem.reduce(nvshmem.Teams.TEAM_WORLD, y, x, "sum", stream=stream)


with stf.context(devices="cuda:0") as ctx:
    x, y = ctx.logical_data(source), ctx.logical_data(target)
    for count in range(1, 4):
        add(x, 1.0)
        put(x, y)
        assert (y.numpy() == count).all(), ("put", count)
    add(x, 4.0)
    reduce(x, y)
    assert (y.numpy() == 7).all(), "reduce"
    with ctx.task_graph() as graph:
        add(x, 1.0)
        put(x, y)
    for count in range(1, 4):
        graph.launch()
        assert (y.numpy() == 7 + count).all(), ("recorded put", count)
    from stf._recording import segments
    captured = graph._recording.graph.graph is not None
    print("library nvshmem: put:", "captured" if captured else f"BETWEEN GRAPHS: {segments.reasons(graph._recording)}")
assert (target.get() == 10).all()
for array in (source, target):
    symmetric.free_array(array)
nvshmem.finalize()
print("right")
"""


def test_transfers_in_bodies(capsys):
    pytest.importorskip("cupy")
    for name in ("nvshmem", "cuda.core"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"no {name}")
    source = str(Path(__file__).parents[2] / "src")
    where = os.environ.get("PYTHONPATH")
    quiet = {"NVSHMEM_DISABLE_NVLS": "1", "NVSHMEM_REMOTE_TRANSPORT": "none", "NVSHMEM_SYMMETRIC_SIZE": str(64 << 20)}
    command = [sys.executable, "-X", "faulthandler", "-c", PROGRAM]
    env = {**os.environ, **quiet, "PYTHONPATH": f"{source}{os.pathsep}{where}" if where else source}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env)
    with capsys.disabled():
        print(*[line for line in done.stdout.splitlines() if line.startswith("library")], sep="\n")
    assert done.returncode == 0 and done.stdout.endswith("right\n"), f"{done.stdout}\n{done.stderr}"
