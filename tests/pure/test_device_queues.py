"""What a loop on a device reads: queues that are run here, block by block, in any order that they allow."""

from __future__ import annotations

import random
import types
from typing import Any

import numpy as np
import pytest

from stf._port import native
from stf._recording import device_loops
from stf._recording.device_loops import DeviceSteps, Words, Work, written
from stf._recording.schedules import check, spread, with_waits
from stf.kernels.device_loops import is_of_cuda, with_bound
from stf.kernels.gpu_loops import if_unchanged


def made(seed: int) -> tuple[DeviceSteps, list[Any]]:
    """Return the steps of a random program, and its kernels: what each uses, and where its steps are."""
    rng = random.Random(seed)
    steps = DeviceSteps(1, 1, 8)
    last: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    kernels = []
    for number in range(rng.randint(1, 60)):
        target, source = rng.sample(range(10), 2)
        needs = dict.fromkeys([*last.get(target, []), *last.get(source, []), *readers.get(target, [])])
        words = np.arange(number, number + rng.choice([1, 20, native.NEAR_WORDS, native.NEAR_WORDS + 1])).tobytes()
        blocks = rng.choice([1, 1, 3, 40])
        ends = steps.add_work(Work(rng.randint(0, 3), words, blocks, [(target, True), (source, False)]), list(needs))
        last[target], readers[target] = ends, []
        readers.setdefault(source, []).extend(ends)
        kernels.append((words, blocks, target, source))
    return steps, kernels


class Device:
    """The memory of a loop, and what its blocks do."""

    def __init__(self, content: bytes, offsets: list[int], queues: int) -> None:
        self.content, self.offsets, self.count = bytearray(content), offsets, queues
        self.log: list[tuple[int, int, int, bytes]] = []  # body, first block, the one behind the last, arguments

    def word(self, part: int, index: int) -> int:
        return int(np.frombuffer(self.content, np.int32, 1, self.offsets[part] + 4 * index)[0])

    def put(self, part: int, index: int, value: int) -> None:
        at = self.offsets[part] + 4 * index
        self.content[at : at + 4] = int(value).to_bytes(4, "little")

    def launch(self, rng: random.Random) -> None:
        """Run all queues to their ends, a step of any that may go on after the other."""
        self.log = []
        value = self.word(5, 0) + 1
        at = [self.word(0, 2 * k) for k in range(self.count)]
        going = [k for k in range(self.count) if at[k] < self.word(0, 2 * k + 1)]
        while going:
            ready = [k for k in going if all(self.word(3, byte) == value for byte in self.waits(at[k]))]
            assert ready, "queues wait for each other"
            k = rng.choice(ready)
            body, _, _, done, where, first, last, near = (self.word(1, 8 * at[k] + i) for i in range(8))
            begin = self.offsets[4] + 8 * where
            self.log.append((body, first, last, bytes(self.content[begin : begin + 8 * near])))
            if done >= 0:
                assert self.word(3, done) != value
                self.put(3, done, value)
            at[k] += 1
            if at[k] == self.word(0, 2 * k + 1):
                going.remove(k)
        self.put(5, 0, value)

    def waits(self, step: int) -> list[int]:
        first, count = self.word(1, 8 * step + 1), self.word(1, 8 * step + 2)
        return [self.word(2, first + i) for i in range(count)]


@pytest.mark.parametrize("seed", range(60))
def test_blocks_run_each_kernel_once_and_in_order(seed: int) -> None:
    steps, kernels = made(seed)
    rng = random.Random(seed)
    order, _ = spread(steps.needs, steps.costs, rng.choice([1, 3, 16]), device_loops.HOP_NS)
    queues = with_waits(steps.needs, [queue for queue in order if queue])
    check(steps.needs, steps.accesses, queues)
    content, offsets = written(steps, queues, {})
    assert all(offset % device_loops.LINE == 0 for offset in offsets)
    device = Device(content, offsets, len(queues))
    for _ in range(3):
        device.launch(rng)
        seen = [entry for entry in device.log if entry[0] != native.DEVICE_NOTHING]
        assert sum(last - first for _, first, last, _ in seen) == sum(blocks for _, blocks, _, _ in kernels)
        done: dict[int, int] = {}  # of each kernel whose arguments are near, by its first word: its blocks
        began: dict[int, int] = {}
        for position, (_, first, last, words) in enumerate(seen):
            if words:
                number = int(np.frombuffer(words, np.int64, 1)[0])
                done[number] = done.get(number, 0) + last - first
                began.setdefault(number, position)
                assert words == kernels[number][0]
        for number, blocks in done.items():
            assert blocks == kernels[number][1]
        for one in began:
            for other in range(one):
                if other in began and {kernels[one][2]} & {kernels[other][2], kernels[other][3]}:
                    ends = max(
                        position
                        for position, entry in enumerate(seen)
                        if entry[3] and int(np.frombuffer(entry[3], np.int64, 1)[0]) == other
                    )
                    assert ends < began[one], f"kernel {one} began before {other} had ended"


class Late:
    """Arguments of a launch: two parameters, of which one is of 4 bytes."""

    def __init__(self, *params: Any) -> None:
        self.params = params

    def parts(self) -> list[tuple[int, int, Any, Any]]:
        return [(8 * i, 8 if i == 0 else 4, param, "iu"[i]) for i, param in enumerate(self.params)]

    def packed(self, values: Any, recorded: bytes) -> bytes:
        first, second = (values[param] for param in self.params)
        return first.to_bytes(8, "little") + second.to_bytes(4, "little") + recorded[12:]


def test_blocks_of_the_loop_get_registers_for_their_threads() -> None:
    image = b".visible .entry stf_loop(\n\t.param .u64 stf_loop_param_0\n)\n{\n\tret;\n}\n"
    assert with_bound(image, 96) == image.replace(b")\n{", b")\n.maxntid 96, 1, 1\n{")
    assert with_bound(b"\x7fELF", 96) == b"\x7fELF"


def test_a_kernel_is_compiled_later_only_of_what_was_submitted() -> None:
    read = {"STEP": 2.0}
    make = if_unchanged(lambda text: eval(text, dict(read)), lambda: tuple(read.items()))
    assert make("STEP + 1") == 3.0
    read["STEP"] = 5.0
    with pytest.raises(native.NotNativeError, match="has changed since then"):
        make("STEP + 1")


def test_names_of_numba_cuda_are_known() -> None:
    assert is_of_cuda(types.ModuleType("numba.cuda"))
    stub = type("threadIdx", (), {"__module__": "numba_cuda.numba.cuda.stubs"})
    assert is_of_cuda(stub) and is_of_cuda(stub())
    assert not any(map(is_of_cuda, (np, np.float64, 1.0, made, types.ModuleType("numba"))))


def test_values_of_parameters_are_passed_once_each() -> None:
    words = Words()
    for at in (100, 200, 300):
        words.add(Late("a", "b"), bytes(16), at)
    words.add(Late("b", "a"), bytes(16), 400)
    assert words.targets == [
        (100, 0, 8, 0),
        (108, 1, 4, 0),
        (200, 0, 8, 0),
        (208, 1, 4, 0),
        (300, 0, 8, 0),
        (308, 1, 4, 0),
        (400, 2, 8, 0),
        (408, 3, 4, 0),
    ]
    content = words.packed({"a": 7, "b": 9}, None)
    assert np.frombuffer(content, np.int64)[:4].tolist() == [7, 9, 9, 7]
    assert len(content) == 8 * device_loops.MOST_WORDS


def test_too_many_values_are_refused() -> None:
    words = Words()
    with pytest.raises(native.NotNativeError, match="480 different values"):
        for number in range(500):
            words.add(Late(number, "b"), bytes(16), 16 * number)
