"""Fake tasks, submitted to a DotRecorder, and what to ask of the graph of random ones."""

from __future__ import annotations

import random
from types import SimpleNamespace

from dotfile import Picture, parse_dot, unescaped
from ordering import ACC, RW, Order, R, W

from stf.observe import DotRecorder
from stf.observe.observer import Operation

Edges = set[tuple[str, str]]


class Program:
    """Submits fake tasks to a recorder, in the order of the rule that the engine keeps."""

    def __init__(self) -> None:
        self.recorder = DotRecorder()
        self.next_id = 0
        self.operations = 0
        self.data_ids: dict[str, int] = {}
        self.orders: dict[str, Order] = {}

    def data_id(self, name: str) -> int:
        return self.data_ids.setdefault(name, len(self.data_ids))

    def task(self, symbol: str | None, *accesses: tuple[str, int], kind: str = "task", place: str = "device(0)") -> int:
        self.next_id += 1
        device = int(place[7:-1]) if place.startswith("device(") else -1
        named = [SimpleNamespace(data_id=self.data_id(name), data_name=name, mode=mode) for name, mode in accesses]
        waits = [self.orders.setdefault(name, Order()).take(self.next_id, mode, place) for name, mode in accesses]
        self.recorder.task(
            SimpleNamespace(
                id=self.next_id,
                symbol=symbol,
                kind=kind,
                place_name=place,
                device=device,
                accesses=named,
                call_site=f"program.py:{self.next_id}",
                waits_for=sorted(set().union(*waits) - {self.next_id}),
            )
        )
        return self.next_id

    def operation(self, kind: str, name: str, source: str, target: str, task_id: int) -> None:
        self.operations += 1
        waits = self.orders.setdefault(name, Order()).move(self.operations, kind, source, target)
        told = (kind, self.data_id(name), name, source, target, 4096, task_id, self.operations, tuple(waits))
        self.recorder.operation(Operation(*told))

    def picture(self, **options: object) -> Picture:
        return parse_dot(self.recorder.to_dot(**options))

    def edges(self, **options: object) -> Edges:
        return {(source, target) for source, target, _ in self.picture(**options).edges}


def label(picture: Picture, node: str) -> list[str]:
    return unescaped(picture.nodes[node]["label"]).split("\n")


def random_accesses(rng: random.Random, count: int) -> list[dict[str, int]]:
    names = [f"X{i}" for i in range(rng.randint(1, 8))]
    return [
        {name: rng.choice((R, R, W, RW, ACC)) for name in rng.sample(names, rng.randint(0, min(3, len(names))))}
        for _ in range(count)
    ]


def nested_sections() -> Program:
    """Return the guide's example: foo holds two bar, each holds t1 and two baz, each holds t2 and t3."""
    program = Program()
    begin, end = program.recorder.section_begin, program.recorder.section_end
    begin("foo")
    for _ in range(2):
        begin("bar")
        program.task("t1", ("A", R), ("B", RW))
        for _ in range(2):
            begin("baz")
            program.task("t2", ("A", R), ("C", RW))
            program.task("t3", ("B", R), ("C", R), ("A", RW))
            end()
        end()
    end()
    return program
