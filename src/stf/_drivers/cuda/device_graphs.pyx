"""Graphs of CUDA's devices: what is captured, looked at and renewed there; `graphs` has what they are made of."""

from libc.stdint cimport int64_t, uintptr_t


from stf._drivers.cuda.devices cimport Device, pop, push
from stf._drivers.cuda.driver cimport CudaDriver
from stf._drivers.cuda.graphs cimport Captured, GraphStore, open_capture

from stf._drivers.cuda.graphs import Condition, child_of, last_node, node_count, memory_nodes_since
from stf.errors import CaptureError


cdef class DeviceGraphs:
    """Graphs of a driver's devices.

    What reads or renews a graph comes after all that was submitted: the submitter may be about to launch it.
    """

    cdef CudaDriver driver
    cdef GraphStore store
    cdef bint conditions  # whether graphs may have conditional nodes

    last_node, node_count, memory_nodes_since, child_of = map(staticmethod, (last_node, node_count, memory_nodes_since, child_of))

    def __init__(self, CudaDriver driver, GraphStore store, bint conditions):
        self.driver = driver
        self.store = store
        self.conditions = conditions

    def begin_capture(self, int device, owner):
        cdef Device gpu = self.driver.gpu(device)
        return open_capture(self.store, gpu.context, gpu.name, NULL, owner)

    def prepare(self, Captured graph):
        if graph.executable is None:
            self.driver.flush()
            before = push(graph.context)
            try:
                graph.prepare()
            finally:
                pop(before)

    def renew(self, Captured graph, list changes):
        self.driver.flush()
        graph.renew(changes)

    def condition(self, int64_t pointer, int device, bint loops):
        cdef Device gpu = self.driver.gpu(device)
        if not self.conditions:
            raise CaptureError("graphs have no conditional nodes (STF_CONDITIONAL_NODES=0)")
        return Condition(self.store, <int64_t><uintptr_t>gpu.context, gpu.name, pointer, loops)

    def statistics(self):
        return self.store.made, self.store.updated, self.store.kept, self.store.kept_bytes, self.store.budget
