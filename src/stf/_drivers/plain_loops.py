"""Loops in the uncompiled form: one thread runs all queues of a `_drivers.loops.Loop`, as its C does."""

from __future__ import annotations

import ctypes
import time
from typing import Any

from stf._port.native import CALL, COPY, FILL


def lead(loop: Any, rounds: int, flag: int) -> int:
    """Run all queues in this thread; return the step whose body failed first, or -1."""
    failed = -1
    loop.rounds = 0
    while loop.rounds < rounds and failed < 0:
        left = [list(queue) for queue in loop.queues]
        done: set[int] = set()
        while any(left):
            before = sum(map(len, left))
            for queue in left:
                while queue and done.issuperset(loop.steps[queue[0]][2]):
                    number = queue.pop(0)
                    body, slot, _, byte, given = loop.steps[number]
                    for own, word in given:
                        loop.table[slot + own] = loop.words[word]
                    start = time.perf_counter_ns()
                    if failed < 0 and body is not None and call(body, loop.table, slot):
                        failed = number
                    if loop.measures:
                        took = max(time.perf_counter_ns() - start, 1)
                        loop.clock[number] = min(took, loop.clock[number] or took)
                    done.add(byte)
            if sum(map(len, left)) == before:
                raise RuntimeError("the queues wait for each other")
        loop.rounds += 1
        if flag and not ctypes.c_uint8.from_address(flag).value:
            break
    return failed


def call(body: Any, table: Any, slot: int) -> bool:
    """Call a body; return whether it failed."""
    if body == CALL:
        try:
            ctypes.cast(table[slot + 1], ctypes.py_object).value()
        except BaseException:
            return True
    elif body == FILL:
        target, count, size = table[slot + 1 : slot + 4]
        pattern = table[slot + 4 :].tobytes()[:size]
        ctypes.memmove(target, pattern * count, count * size)
    elif body == COPY:
        target, source, width, rows, pitch, source_pitch, slices, step, source_step = table[slot + 1 : slot + 10]
        for i in range(slices):
            for k in range(rows):
                ctypes.memmove(target + i * step + k * pitch, source + i * source_step + k * source_pitch, width)
    else:
        address = table.buffer_info()[0] + slot * table.itemsize
        return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(body)(address) != 0
    return False
