"""The order of recorded tasks and operations, as the engine made it: each record says what it waits for.

An engine gives its tasks numbers, and its operations numbers of their own, which stand with a minus sign among those
that something waits for (`stf._port.events`). No rule of order stands here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .taskgraph import Node
from .units import format_bytes

READ, WRITE, ACCUMULATE = 1, 2, 4
MODE_NAMES = {READ: "read", WRITE: "write", READ | WRITE: "rw", ACCUMULATE: "accumulate"}

# id, symbol, kind, place name, device, accesses (data << 3 | mode), call site, section, what it waits for
TaskRecord = tuple[int, str | None, str, str, int, tuple[int, ...], str, int, tuple[int, ...]]
# number of tasks before it, kind, data, source, target, nbytes, task id, section, number, what it waits for
OperationRecord = tuple[int, str, int, str, str, int, int, int, int, tuple[int, ...]]

_OPERATION_TITLES = {"write_back": "write back"}
_MOVING = frozenset({"copy", "write_back", "evict"})


class Order:
    """Go through the records in program order and build nodes and their predecessors.

    Parameters
    ----------
    data_names
        The name of each data; its index is what the records call the data.
    hidden_kinds
        Kinds of tasks that get no node. What is ordered only through them is joined directly.
    shows_operations
        Whether operations get nodes.
    """

    def __init__(self, data_names: Sequence[str], hidden_kinds: frozenset[str], shows_operations: bool) -> None:
        self.nodes: list[Node] = []
        self.predecessors: list[list[int]] = []
        self._names = data_names
        self._hidden_kinds = hidden_kinds
        self._shows_operations = shows_operations
        self._nodes_of: dict[int, Iterable[int]] = {}  # by number: its node, or those that a hidden one comes after
        self._leaves: set[int] = set()

    def run(
        self, tasks: Sequence[TaskRecord], operations: Sequence[OperationRecord], durations: dict[int, int]
    ) -> None:
        """Go through all tasks, each after the operations that were done for it."""
        index_of = {task[0]: index for index, task in enumerate(tasks)} if operations else {}
        due = sorted(operations, key=lambda record: index_of.get(record[6], record[0]))[::-1]
        for index, task in enumerate(tasks):
            made_for_it = set()
            while due and index_of.get(due[-1][6], due[-1][0]) <= index:
                record = due.pop()
                self._operation(record, task)
                if self._shows_operations and record[6] == task[0]:
                    made_for_it.add(len(self.nodes) - 1)
            self._task(task, durations.get(task[0]), made_for_it)
        for record in reversed(due):
            self._operation(record, None)

    def _task(self, record: TaskRecord, duration_ns: int | None, operations: set[int]) -> None:
        number, symbol, kind, place, device, accesses, call_site, section, waits_for = record
        before = self._known(waits_for) | operations
        if kind in self._hidden_kinds:
            self._nodes_of[number] = before
            return
        if kind == "fence":
            before |= self._leaves
        names = tuple((self._names[access >> 3], access & 7) for access in accesses)
        title = symbol or f"{kind} {number}"
        name = f"t{number}"
        self._add(number, Node(name, kind, title, section, place, device, names, call_site, "", duration_ns), before)

    def _operation(self, record: OperationRecord, task: TaskRecord | None) -> None:
        _, kind, data, source, target, nbytes, task_id, section, number, waits_for = record
        before = self._known(waits_for)
        if not self._shows_operations:
            self._nodes_of[-number] = before
            return
        if task is not None and task[0] == task_id:
            section = task[7]
        route = f"{source} → {target}" if kind in _MOVING and target else target or source
        title = f"{_OPERATION_TITLES.get(kind, kind)} {self._names[data]}"
        detail = f"{route}, {format_bytes(nbytes)}" if nbytes else route
        name = f"o{len(self.nodes)}"
        node = Node(name, kind, title, section, target or source, detail=detail, num_tasks=0)
        self._add(-number, node, before)

    def _known(self, numbers: Iterable[int]) -> set[int]:
        """Return the nodes of these; what was taken back, or recorded before this began, has none."""
        found: set[int] = set()
        for number in numbers:
            found.update(self._nodes_of.get(number, ()))
        return found

    def _add(self, number: int, node: Node, before: set[int]) -> None:
        index = len(self.nodes)
        self._nodes_of[number] = (index,)
        self._leaves -= before
        self._leaves.add(index)
        self.nodes.append(node)
        self.predecessors.append(sorted(before))
