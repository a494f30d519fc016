"""Roles of drivers: what only some have, as ``kernels``, ``graphs`` or ``parcels``.

What is put on a stream is a verb of `Driver`, which a driver around another can count, delay or refuse. What makes,
looks at and changes functions and graphs stands on no stream, and is here. A driver without it has None.
"""

from __future__ import annotations

from typing import Any, Protocol


class Functions(Protocol):
    """Functions of a driver's devices, by their addresses; in a `context` of the caller's, or 0 for a device's own."""

    def load(self, device: int, context: int, image: bytes, name: bytes) -> int:
        """Return the function of that name in machine code, which is loaded once into each context."""

    def of_kernel(self, device: int, context: int, kernel: int) -> int:
        """Return the function of a kernel that belongs to no context."""

    def parameters(self, function: int) -> list[tuple[int, int]]:
        """Return (offset, size) in bytes of each parameter of a function."""

    def capability(self, device: int) -> tuple[int, int]:
        """Return what a device can do, as (major, minor)."""

    def multiprocessors(self, device: int) -> int:
        """Return how many multiprocessors a device has."""

    def blocks_at_once(self, device: int, context: int, function: int, threads: int, shared: int = 0) -> int:
        """Return how many blocks of so many threads and bytes of shared memory of a function run at once."""

    def show_printed(self) -> None:
        """Have the system show what kernels that are done have printed."""

    def launch(
        self,
        function: int,
        shape: tuple[int, ...],
        extras: tuple[Any, bool, bool],
        offsets: list[int],
        place: str,
        arguments: bytes,
        stream: int,
    ) -> None:
        """Launch a function on a stream whose context is current, perhaps in clusters, cooperative, or overlapping.

        `shape` is (grid, block, shared bytes), seven numbers; `extras` are (cluster or None, two flags). Each argument
        is told by its offset in `arguments`; errors name the `place`.
        """


class Graphs(Protocol):
    """Graphs of what is put on captured streams; `pointer` is the device library's stream, which is captured."""

    def begin_capture(self, device: int, owner: Any) -> Any:
        """Begin to capture a stream of `device`: an object with its `pointer`; its ``end()`` is what was captured.

        That may be None for nothing. ``is_spoilt()`` says whether a call has ended it that cannot be captured. The
        stream is that of an earlier capture, whose `owner` it was, or else a new one: bodies that may run side by side
        must not be captured on one stream (see `cuda.graphs.CaptureStream`).
        """

    def prepare(self, graph: Any) -> None:
        """Let a captured graph be ready to be launched."""

    def renew(self, graph: Any, changes: list[Any]) -> None:
        """Let nodes of a captured graph do something else from the next launch on.

        Each change is (node, shape, content, …): for a kernel (function, three extents of the grid, three of a block,
        shared memory) and the bytes of its arguments; for a copy or a fill an empty tuple and by how many bytes target
        and source are further on than they were when it was captured; else None and another captured graph that looks
        like the last.
        """

    def condition(self, pointer: int, device: int, loops: bool) -> Any:
        """Return a condition in the graph that a stream is captured into; see `Captures.condition`."""

    def last_node(self, pointer: int) -> Any:
        """Return the node that a stream had last."""

    def node_count(self, pointer: int) -> int:
        """Return how many nodes the graph has that a stream is captured into."""

    def memory_nodes_since(self, pointer: int, count: int) -> list[Any] | None:
        """Return the copies and fills that followed each other on a stream since its graph had `count` nodes.

        None if there are others, or the memory is the host's and not pinned: these nodes cannot be changed.
        """

    def child_of(self, pointer: int, known: tuple[int, int] | None) -> tuple[int, int]:
        """Return an empty graph, which comes next on a stream, and its node; the `known` ones if nothing came after."""

    def statistics(self) -> tuple[int, int, int, int, int]:
        """Return how many executable graphs were made, were updated, and wait to be; their bytes, and the budget."""


class Loops(Protocol):
    """Loops of compiled bodies; see `_drivers.loops.Loop`."""

    def make(self, queues: list[list[tuple[Any, ...]]], table: list[int], held: Any) -> Any:
        """Return a loop, which holds what is `held`: ``put`` prepares it; ``lead`` runs it."""


class Parcels(Protocol):
    """Recordings that other processes keep; see `_recording.parcels`. Place 0 is this process."""

    def pack(self, nodes: list[Any], bodies: list[Any], trips: list[Any], varying: set[int]) -> Any:
        """Return a parcel with its `bodies` and `varying`; None if other processes cannot do all of it.

        Each node is (place, the nodes before it, steps). A step is ("call", number of a body), ("copy", target,
        source) or ("fill", target, the bytes of an element). Memory is (address, strides, shape, bytes of an element,
        what keeps it). `trips` say how each body travels, and `varying` are those whose arguments are given with each
        launch. The parcel's ``close()`` lets it be forgotten.
        """

    def is_whole(self, parcel: Any) -> bool:
        """Return whether all processes that keep a part of it are there."""

    def prepare(self, parcel: Any, launched: Any, changed: dict[int, Any]) -> Any:
        """Return a run of a parcel, with the `places` where it has a part; None if it is to be played this time.

        `launched` is a `CarriedLaunch`; `changed` are the trips of bodies that are not as they were packed.
        """
