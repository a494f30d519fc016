"""Pieces: a recording that is no one graph of the driver's is several, with what the host does between them.

The host runs bodies, and drives loops that a device cannot decide. Nodes that come after the same number of these on
their longest way, and before the same one first, are a piece::

    scale ─▶ sum ─▶ [print] ─▶ shift          the pieces {scale, sum}, {blur, edge} and {shift}: the second is done
      └────▶ blur ─▶ edge                     while the host prints

A piece never waits for what comes after it: both numbers only grow along edges.

What somebody waits for is apart from the rest, too: a piece is before that, behind it, or beside both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stf._port.programs import Program
from stf._recording.device_graphs import DriverGraph
from stf._support.log_once import log_once

NEVER = 1 << 62  # later than anything that the host does
RUN = 6


class Piece:
    """Nodes of a recording that are one graph of the driver's, if the driver takes them.

    `read` are the data that the host looks at between pieces.
    """

    def __init__(self, around: Any, program: Program, parts: list[Any], read: set[Any]) -> None:
        self.description = f"a piece of {around.description}"
        self.program = program
        self.parts = parts
        self.read = read
        self.graph = DriverGraph(0)

    def run(self, frame: Any) -> None:
        """Do it after what is on the slot."""
        if not self.graph.launch(frame, self):
            frame.play(self.program)

    def put(self, frame: Any) -> None:
        """Let a graph do it, of which this becomes a part."""
        frame.play(self.program)

    def has_calls(self) -> bool:
        """Return whether bodies run on the host."""
        return self.program.calls > 0 or any(part.has_calls() for part in self.parts)

    def refusal(self, where: int, memory: int, looped: bool, unread: frozenset[Any], hosts: bool = False) -> None:
        """Why it cannot be one graph of the driver's: nothing says so, since its parts were asked before."""

    def flags(self) -> list[Any]:
        """Return the data that decisions in it look at, and nobody reads on the host."""
        return [flag for part in self.parts for flag in part.flags() if flag not in self.read]


class Awaited:
    """Data of a recording that somebody waits for: the nodes by which they are `brought`, and by which they are `read`.

    They are lists by data, of nodes in `program`: that of the recording, or of its pieces; of events, when it was
    launched.
    """

    def __init__(self, data: list[Any], program: Program, brought: list[list[int]], read: list[list[int]]) -> None:
        self.data = data
        self.program = program
        self.brought = brought
        self.read = read

    def cut(self, recording: Any, where: int, memory: int) -> None:
        """Have pieces in place of the recording's own program."""
        routines = self.program.routines()
        nodes = sorted({node for brought in self.brought for node in brought})
        self.program, _, place_of = cut(recording, routines, _of_hosts(routines, where, memory), where, nodes)
        self.note(place_of)

    def note(self, found: Any) -> None:
        """Have what was found for all nodes, such as their events, in place of those."""
        self.brought = [[found[node] for node in nodes] for nodes in self.brought]
        self.read = [[found[node] for node in nodes] for nodes in self.read]


def in_pieces(recording: Any, where: int, memory: int, call_site: str) -> Program | None:
    """Return what a recording does, with graphs for its pieces; None where that is no better, or all is one piece."""
    program: Program = recording.program
    routines = program.routines()
    hosts = _of_hosts(routines, where, memory)
    if not hosts or len(hosts) == program.count:
        return None
    outline, pieces, _ = cut(recording, routines, hosts, where)
    if not pieces:
        return None
    log_once(
        recording.description,
        call_site,
        "is, in pieces, %s of the device's and %s of the host",
        f"{len(pieces)} graph{'s' if len(pieces) > 1 else ''}",
        f"{len(hosts)} step{'s' if len(hosts) > 1 else ''}",
    )
    return outline


def reasons(routine: Any) -> dict[str, str]:
    """Return why the host does parts of a routine, as launches have found: what the log says, by the bare reason."""
    found: dict[str, str] = {}
    for part in routine.parts:
        found |= reasons(part)
    is_body = routine.graph is None
    reason = getattr(routine, "reason", None) if is_body else routine.graph.refusal
    if reason is not None and reason not in found:  # else a part of it is why
        found[reason] = reason if is_body else f"{routine.description} is driven from the host: {reason}"
    return found


def _of_hosts(routines: list[Any], where: int, memory: int) -> set[int]:
    """Return the nodes that the host does, by the nested programs of each."""
    return {
        node
        for node, parts in enumerate(routines)
        if parts is None
        or any(part.refusal(where, memory, False, frozenset(part.flags())) is not None for part in parts)
    }


def cut(
    recording: Any, routines: list[Any], hosts: set[int], where: int, awaited: list[int] | None = None
) -> tuple[Program, list[Any], dict[int, int]]:
    """Return a program of the pieces of a recording and its nodes `hosts`; what is up to the nodes `awaited` is apart.

    Also the pieces, which are graphs for `where`, and where in that program each node is. `routines` are the nested
    programs of each node.
    """
    read = {flag for node in hosts for part in routines[node] or () for flag in part.flags()}

    def piece_of(nodes: list[int], program: Program) -> Piece:
        return Piece(recording, program, [part for node in nodes for part in routines[node] or ()], read)

    program: Program = recording.program
    return put_together(program, _groups(program, hosts, awaited), where, 2, piece_of)


def put_together(
    program: Program,
    groups: Iterable[list[int]],
    where: int,
    least: int,
    make: Callable[[list[int], Program], Any],
) -> tuple[Program, list[Any], dict[int, int]]:
    """Return a program in which pieces take the place of groups of at least so many nodes.

    Also these pieces, which `make` makes of nodes and a program of them, and where in that program each node is.
    """
    outline, pieces = program.sharing(True), []
    place_of: dict[int, int] = {}
    for nodes in groups:
        if len(nodes) >= least:
            pieces.append(make(nodes, _part_of(program, nodes)))
            operation = (RUN, pieces[-1], None, None, None)
            number = outline.take(program, (where, operation), _needs_of(program, nodes, place_of))
            place_of.update(dict.fromkeys(nodes, number))
        else:
            for node in nodes:
                place_of[node] = outline.take(program, node, _needs_of(program, [node], place_of))
    return outline, pieces, place_of


def _needs_of(program: Program, nodes: list[int], place_of: dict[int, int]) -> set[int]:
    """Return what some nodes together come after, as numbers in an outline."""
    inside = set(nodes)
    return {place_of[need] for node in nodes for need in program.needs_of(node) if need not in inside}


def loops_in(
    recording: Any, hosts: set[int], where: int, least: int, make: Callable[[list[int], Program], Any]
) -> tuple[Program, list[Any]]:
    """Return a program in which pieces take the place of runs of at least so many nodes, and these pieces.

    `hosts` are the nodes that no piece can have; `make` is as in `put_together`.
    """
    program: Program = recording.program
    runs = [nodes for group in _groups(program, hosts, None) for nodes in _joined_by_edges(program, group)]
    return put_together(program, runs, where, least, make)[:2]


def _groups(program: Program, hosts: set[int], awaited: list[int] | None) -> list[list[int]]:
    """Return the nodes that are between the same steps of the host, on one side of those awaited, in order."""
    before, after = _host_steps(program, hosts)
    sides = _sides(program, awaited)
    groups: dict[tuple[int, int, int], list[int]] = {}
    for node in range(program.count):
        step = (2 * before[node] + 1, node) if node in hosts else (2 * before[node], after[node])
        groups.setdefault((*step, sides[node]), []).append(node)
    return [groups[key] for key in sorted(groups)]


def _joined_by_edges(program: Program, nodes: list[int]) -> list[list[int]]:
    """Return the nodes in lists of those that edges among them join: others need not wait for each other's hosts."""
    group_of: dict[int, list[int]] = {}
    for node in nodes:
        group = [node]
        for need in program.needs_of(node):
            other = group_of.get(need)
            if other is not None and other is not group:
                small, group = sorted((group, other), key=len)
                group += small
                group_of.update(dict.fromkeys(small, group))
        group_of[node] = group
    return [sorted(group) for group in {id(group): group for group in group_of.values()}.values()]


def _sides(program: Program, awaited: list[int] | None) -> list[int]:
    """Return of each node 0 up to those awaited, 2 behind such nodes, 1 beside both; they only grow along edges."""
    sides = [1 if awaited else 0] * program.count
    for node in awaited or ():
        sides[node] = 0
    for node in reversed(range(program.count)):
        if sides[node] == 0:
            for need in program.needs_of(node):
                sides[need] = 0
    for node in range(program.count):
        if sides[node] and any(sides[need] != 1 for need in program.needs_of(node)):
            sides[node] = 2
    return sides


def _host_steps(program: Program, hosts: set[int]) -> tuple[list[int], list[int]]:
    """Return how many steps of the host come before each node, and the number of the first step after it."""
    before, after = [0] * program.count, [NEVER] * program.count
    for node in range(program.count):
        for need in program.needs_of(node):
            before[node] = max(before[node], before[need] + (need in hosts))
    for node in reversed(range(program.count)):
        step = before[node] if node in hosts else after[node]
        for need in program.needs_of(node):
            after[need] = min(after[need], step)
    return before, after


def _part_of(program: Program, nodes: list[int]) -> Program:
    """Return a program of some nodes; what they need beyond these is done before."""
    part = program.sharing(False)
    place_of: dict[int, int] = {}
    for node in nodes:
        place_of[node] = part.take(program, node, [place_of[n] for n in program.needs_of(node) if n in place_of])
    return part
