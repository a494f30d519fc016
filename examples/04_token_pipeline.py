"""A pipeline over things that stf does not manage, put in order by tokens.

    load(0) --slot 0--> blur(0) --slot 0--> store(0)
    load(1) --slot 1--> blur(1) --slot 1--> store(1)    store(0) -> store(1) -> ... by the token `output`
    load(2) --slot 2--> blur(2) --slot 2--> store(2)
    load(3) --slot 0--> ...                             load(3) waits for store(0), which empties slot 0

The frames live in a ring of three plain buffers, and the results go to a Python list. A token stands for each
of them: it has no memory, only an order. So three frames are in flight at once, none overwrites another, and
the list is filled in the order of the frames.
"""

import numpy as np

import stf

FRAMES, SLOTS, SIZE = 20, 3, 256


def make_frame(number: int) -> np.ndarray:
    return np.random.default_rng(number).random((SIZE, SIZE))


def blurred(frame: np.ndarray) -> np.ndarray:
    shifted = [np.roll(frame, by, axis) for by in (1, -1) for axis in (0, 1)]
    return (frame + sum(shifted)) / 5.0


class Pipeline:
    """The buffers and the output, as any program might have them."""

    def __init__(self):
        self.ring = [np.empty((SIZE, SIZE)) for _ in range(SLOTS)]
        self.output: list[tuple[int, float]] = []


@stf.task
def load(_slot: stf.Write, pipeline: Pipeline, number: int) -> None:
    pipeline.ring[number % SLOTS][...] = make_frame(number)


@stf.task
def blur(_slot: stf.ReadWrite, pipeline: Pipeline, number: int) -> None:
    pipeline.ring[number % SLOTS][...] = blurred(pipeline.ring[number % SLOTS])


@stf.task
def store(_slot: stf.Read, _output: stf.ReadWrite, pipeline: Pipeline, number: int) -> None:
    pipeline.output.append((number, float(pipeline.ring[number % SLOTS].max())))


def main() -> None:
    pipeline = Pipeline()
    with stf.context() as ctx:
        slots = [ctx.token().set_symbol(f"slot {i}") for i in range(SLOTS)]
        output = ctx.token().set_symbol("output")
        for number in range(FRAMES):
            slot = slots[number % SLOTS]
            load(slot, pipeline, number)
            blur(slot, pipeline, number)
            store(slot, output, pipeline, number)
    assert pipeline.output == [(number, float(blurred(make_frame(number)).max())) for number in range(FRAMES)]
    print(f"{FRAMES} frames through {SLOTS} buffers, in order; the last maximum is {pipeline.output[-1][1]:.4f}")


if __name__ == "__main__":
    main()
