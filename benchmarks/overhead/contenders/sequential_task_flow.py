"""stf itself: with-blocks and function tasks, on the CPU driver and on the recorder."""

from __future__ import annotations

import weakref

import numpy as np

import stf
from stf._backends.recorder import Recorder
from stf._engine.engine import Engine
from stf._port.place import Place
from stf._port.replicas import Layout
from stf.data.logical_data import LogicalData
from stf.tasks.task import ContextCore

from . import Contender, Program

__all__ = ["CpuBlocks", "CpuCalls", "RecorderBlocks", "RecorderCalls"]


@stf.task
def rw(a: stf.ReadWrite) -> None:
    pass


@stf.task
def read_rw(a: stf.Read, b: stf.ReadWrite) -> None:
    pass


@stf.task
def three_reads_write(a: stf.Read, b: stf.Read, c: stf.Read, _d: stf.Write) -> None:
    pass


FUNCTIONS = {("rw",): rw, ("read", "rw"): read_rw, ("read", "read", "read", "write"): three_reads_write}


class CpuProgram(Program):
    """On the CPU driver; nothing is held back, so that submission alone can be timed."""

    def __init__(self, case, count, submit):
        self.context = stf.context(devices="cpu", max_pending=4 * count)
        if case.tokens:
            self.data = [self.context.token() for _ in range(case.data_count)]
        else:
            self.data = [self.context.logical_data(np.zeros(4)) for _ in range(case.data_count)]
        self.submit = lambda: submit(self.context, self.data)
        self.finish = self.context.synchronize

    def close(self):
        self.context.finalize()


class RecorderProgram(Program):
    """On the backend that writes down what it is told: what is left is the engine."""

    def __init__(self, case, count, submit):
        self.context = RecorderContext()
        self.data = [self.context.data(case.tokens) for _ in range(case.data_count)]
        self.submit = lambda: submit(self.context, self.data)


class RecorderContext(ContextCore):
    """As much of a context as submitting tasks takes."""

    def __init__(self):
        engine = Engine(Recorder(2), [Place(0, "host", -1, 0), Place(1, "device(0)", 0, 0)], [0, 0])
        engine.context = weakref.ref(self)
        self.attach(engine, 1)

    def data(self, token):
        if token:
            return LogicalData(self.engine.new_data(None, None, True))
        array = np.zeros(4)
        core = self.engine.new_data(Layout(array.shape, array.strides, array.dtype, array.itemsize))
        self.engine.set_home(core, 0, array.ctypes.data, array)
        return LogicalData(core)


class Blocks(Contender):
    kind = "stf"
    program: type[Program]

    def prepare(self, case, count):
        return self.program(case, count, lambda context, data: case.blocks(context, data, count))


class Calls(Contender):
    kind = "stf"
    program: type[Program]

    def prepare(self, case, count):
        fn = FUNCTIONS[case.modes]
        return self.program(case, count, lambda context, data: case.calls(fn, data, count))


class RecorderBlocks(Blocks):
    name = "stf with-block, engine alone"
    program = RecorderProgram


class CpuBlocks(Blocks):
    name = "stf with-block, cpu"
    program = CpuProgram


class RecorderCalls(Calls):
    name = "stf function task, engine alone"
    program = RecorderProgram


class CpuCalls(Calls):
    name = "stf function task, cpu"
    program = CpuProgram
