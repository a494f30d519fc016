"""By hand on a GPU: a stream and two events for each column; a task waits for the events of what it reads and overwrites."""

from __future__ import annotations

import numpy as np
from kernel import BUFFER, LENGTH

from . import Missing, Runner
from .stf_runners import compiled

__all__ = ["Streams"]


class Streams(Runner):
    """CuPy's streams, events and kernels."""

    name = "CUDA streams by hand"

    def __init__(self, graph, devices):
        if not devices.startswith("cuda"):
            raise Missing("it needs a GPU")
        import cupy

        self.graph, self.synchronize = graph, cupy.cuda.runtime.deviceSynchronize
        columns = range(graph.width)
        self.streams = [cupy.cuda.Stream(non_blocking=True) for _ in columns]
        self.events = [[cupy.cuda.Event(disable_timing=True) for _ in columns] for _ in range(2)]
        self.data = [[cupy.zeros(LENGTH, np.float64) for _ in columns] for _ in range(2)]
        self.synchronize()
        self.steps = 0

    def run(self, steps, iterations):
        self.steps = steps
        readers = [[] for _ in self.streams]  # of what a step overwrites: columns of the step before
        for step in range(steps):
            outs, before = self.data[step % 2], self.data[(step - 1) % 2]
            events, earlier = self.events[step % 2], self.events[(step - 1) % 2]
            read_by = [[] for _ in self.streams]
            for column, inputs in enumerate(self.graph.row(step)):
                stream = self.streams[column]
                for other in {*inputs, *readers[column]} - {column}:
                    stream.wait_event(earlier[other])
                arguments = (step, column, iterations, outs[column], *[before[i] for i in inputs])
                compiled(len(inputs))((1,), (BUFFER,), arguments, stream=stream)
                events[column].record(stream)
                for i in inputs:
                    read_by[i].append(column)
            readers = read_by
        self.synchronize()

    def rows(self):
        widths = [len(self.graph.row(self.steps - 1 - back)) for back in range(2)]
        return [
            [array.get() for array in self.data[(self.steps - 1 - back) % 2][:width]]
            for back, width in enumerate(widths)
        ]
