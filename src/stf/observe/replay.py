"""The order of recorded tasks: the engine's dependency rule once more, told from accesses alone.

Per data: the last writers and the readers since. A read waits for the writers, a write for writers and
readers. Accumulations commute: a run of them has one common set of predecessors, its `base`, and together
they are the last writers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from .taskgraph import Node
from .units import format_bytes

READ, WRITE, ACCUMULATE = 1, 2, 4

# id, symbol, kind, place name, device, accesses (data << 3 | mode), call site, section
TaskRecord = tuple[int, str | None, str, str, int, tuple[int, ...], str, int]
# number of tasks before it, kind, data, source, target, nbytes, task id, section
OperationRecord = tuple[int, str, int, str, str, int, int, int]

_OPERATION_TITLES = {"write_back": "write back"}
_READING = frozenset({"copy", "write_back", "evict"})
_ENDING = frozenset({"free", "evict"})


class DataOrder:
    """Who may still have to be waited for, of one data. Positive: a node; negative: a hidden one."""

    __slots__ = ("accumulating", "base", "movers", "readers", "replicas", "writers")

    def __init__(self) -> None:
        self.writers: list[int] = []
        self.readers: list[int] = []
        self.base: list[int] = []
        self.accumulating = False
        self.replicas: dict[str, int] = {}  # place → the operation that made the replica there
        self.movers: list[int] = []  # operations that read a replica since the last write

    def before(self, mode: int) -> list[int]:
        """Return what an access with `mode` waits for."""
        if mode == READ:
            return self.writers
        if mode == ACCUMULATE and self.accumulating and not self.readers:
            return self.base
        return self.writers + self.readers

    def note(self, node: int, mode: int, before: list[int]) -> None:
        """Note an access by `node`, which waits for `before`."""
        if mode == READ:
            self.readers.append(node)
        elif mode == ACCUMULATE and before is self.base:
            self.writers.append(node)
        else:
            self.accumulating = mode == ACCUMULATE
            self.base = before if self.accumulating else []
            self.writers, self.readers = [node], []
        if mode != READ:
            self.replicas, self.movers = {}, []


class Replay:
    """Go through the records in program order and build nodes and their predecessors.

    Parameters
    ----------
    data_names
        The name of each data; its index is what the records call the data.
    hidden_kinds
        Kinds of tasks that get no node. What is ordered only through them is joined directly.
    """

    def __init__(self, data_names: Sequence[str], hidden_kinds: frozenset[str]) -> None:
        self.nodes: list[Node] = []
        self.predecessors: list[list[int]] = []
        self._names = data_names
        self._hidden_kinds = hidden_kinds
        self._hidden: list[set[int]] = []
        self._order: dict[int, DataOrder] = {}
        self._leaves: set[int] = set()

    def run(
        self, tasks: Sequence[TaskRecord], operations: Sequence[OperationRecord], durations: dict[int, int]
    ) -> None:
        """Go through all tasks, each after the operations that were done for it."""
        position = {task[0]: index for index, task in enumerate(tasks)} if operations else {}
        pairs = [(position.get(record[6], record[0]), record) for record in operations]
        due = deque(sorted(pairs, key=lambda pair: pair[0]))
        for index, task in enumerate(tasks):
            mine: list[int] = []
            while due and due[0][0] <= index:
                record = due.popleft()[1]
                node = self._operation(record, task[7] if record[6] == task[0] else record[7])
                if record[6] == task[0]:
                    mine.append(node)
            self._task(task, durations.get(task[0]), mine)
        for _, record in due:
            self._operation(record, record[7])

    def _task(self, record: TaskRecord, duration_ns: int | None, operations: Iterable[int]) -> None:
        _, _, kind, place, _, accesses, _, _ = record
        if kind in self._hidden_kinds and kind == "fence" and not accesses:
            return
        index = len(self.nodes)
        if kind in self._hidden_kinds:
            self._hidden.append(set())
            index = -len(self._hidden)
        before = set(operations) | self._accesses(index, accesses, place)
        if kind == "fence" and index >= 0:
            before |= self._leaves
        if index < 0:
            self._hidden[-index - 1] = before
            return
        self._add(self._task_node(record, duration_ns), before)

    def _task_node(self, record: TaskRecord, duration_ns: int | None) -> Node:
        task_id, symbol, kind, place, device, accesses, call_site, section = record
        names = tuple((self._names[access >> 3], access & 7) for access in accesses)
        title = symbol or f"{kind} {task_id}"
        return Node(f"t{task_id}", kind, title, section, place, device, names, str(call_site), "", duration_ns)

    def _accesses(self, index: int, accesses: Iterable[int], place: str) -> set[int]:
        before: set[int] = set()
        for access in accesses:
            mode = access & 7 if access & 7 <= ACCUMULATE else READ | WRITE
            order = self._order.get(access >> 3) or self._order_of(access >> 3)
            waits = order.before(mode)
            before.update(waits)
            if mode != READ and order.movers:
                before.update(order.movers)
            if order.replicas and place in order.replicas:
                before.add(order.replicas[place])
            order.note(index, mode, waits)
        before.discard(index)  # the same data twice
        return self._visible(before) if self._hidden else before

    def _operation(self, record: OperationRecord, section: int) -> int:
        _, kind, data, source, target, nbytes, _, _ = record
        order = self._order_of(data)
        index = len(self.nodes)
        before = set(order.writers) if kind in _READING else set()
        if kind in _ENDING:
            before.update(order.writers, order.readers, order.movers)
        before.update(order.replicas[place] for place in (source, target) if place in order.replicas)
        if kind in _ENDING:
            order.replicas.pop(source, None)
        if kind in ("copy", "alloc"):
            order.replicas[target] = index
        if kind in _READING:
            order.movers.append(index)
        self._add(self._operation_node(kind, data, source, target, nbytes, section), self._visible(before))
        return index

    def _operation_node(self, kind: str, data: int, source: str, target: str, nbytes: int, section: int) -> Node:
        route = f"{source} → {target}" if kind in _READING and target else target or source
        title = f"{_OPERATION_TITLES.get(kind, kind)} {self._names[data]}"
        detail = f"{route}, {format_bytes(nbytes)}" if nbytes else route
        name = f"o{len(self.nodes)}"
        return Node(name, kind, title, section, target or source, detail=detail, num_tasks=0)

    def _order_of(self, data: int) -> DataOrder:
        order = self._order.get(data)
        if order is None:
            order = self._order[data] = DataOrder()
        return order

    def _visible(self, nodes: set[int]) -> set[int]:
        """Replace hidden nodes by what they wait for."""
        shown = {node for node in nodes if node >= 0}
        for node in nodes - shown:
            shown |= self._hidden[-node - 1]
        return shown

    def _add(self, node: Node, before: set[int]) -> None:
        self._leaves -= before
        self._leaves.add(len(self.nodes))
        self.nodes.append(node)
        self.predecessors.append(sorted(before))
