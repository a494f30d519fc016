"""CUDA graphs that tasks fill node by node, as ``t.graph`` gives them."""

from __future__ import annotations

from typing import Any

from stf.errors import PlaceError, TaskStateError

__all__ = ["OwnGraph", "graph_of"]


class OwnGraph:
    """A CUDA graph, empty at first, that is a part of the one that its task belongs to; made by ``t.graph``.

    Add nodes to it with a library that takes a CUgraph, until the task ends. They come after what the task has put on
    its stream before, and before what it puts there from then on. So ``t.graph`` is the same graph each time, until the
    task puts something on its stream: then it is another one. It may hold no conditional nodes and no allocations
    (`CUDA Driver API, "Graph Management" <https://docs.nvidia.com/cuda/cuda-driver-api/>`_, cuGraphAddChildGraphNode).

    Attributes
    ----------
    handle : int
        The address of the CUgraph, which belongs to the graph around it: destroy nothing.
    """

    __slots__ = ("_found", "handle")

    def __init__(self, found: tuple[int, int]) -> None:
        self.handle = found[0]
        self._found = found  # its address, and that of its node

    def __int__(self) -> int:
        """Return the address of the CUgraph."""
        return self.handle

    def __repr__(self) -> str:
        return f"<graph of a task at {self.handle:#x}>"


def graph_of(task: Any, known: OwnGraph | None = None) -> OwnGraph:
    """Return a part of the graph that a task belongs to: the `known` one if nothing came after it, else a new one.

    Raises
    ------
    PlaceError
        The task runs where there are no CUDA graphs.
    TaskStateError
        The task is not open, or no part of a graph.
    """
    task.must_be_open("graph")
    pointer = task.cuda_stream()
    if pointer is None:
        raise PlaceError(f"task {task.label()} runs at {task.place_name}, which has no CUDA graphs; work on its arrays")
    engine = task.engine
    if not engine.scope.records and not engine.root.captured:
        raise TaskStateError(
            f"task {task.label()} is no part of a graph: use t.stream, or submit it in stf.context(use_graph=True), "
            "ctx.graph_scope() or ctx.task_graph()"
        )
    found = engine.root.captures.graphs.child_of(pointer, None if known is None else known._found)
    return known if known is not None and found == known._found else OwnGraph(found)
