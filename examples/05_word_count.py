"""Count the words of a text in parallel, adding up into one histogram.

    text --chunk 0--> count --.
         --chunk 1--> count --+--sum--> histogram --> most_common
         --chunk 2--> count --+
         --chunk 3--> count --'

The tasks all change the histogram, and would run one after the other if they read and wrote it.
`stf.Accumulate[stf.reducer.sum]` says that each only adds to it, so their order does not matter; each gets an
array of its own to add to, and the sum is formed before the next reader.
"""

import collections
import itertools

import numpy as np

import stf

VOCABULARY = """
the of and to in a is that for it as was with be by on not he his but at are this have which or from had they
will task data place event stream lane node graph copy replica device host array kernel reduction token pipeline
"""
WORDS = VOCABULARY.split()
IDS = {word.encode(): number for number, word in enumerate(WORDS)}
CHUNKS = 8


def make_text(length: int, seed: int = 0) -> bytes:
    """Return a text in which the k-th word is 1/k as frequent as the first, after Zipf's law."""
    weights = 1.0 / np.arange(1, len(WORDS) + 1)
    numbers = np.random.default_rng(seed).choice(len(WORDS), size=length, p=weights / weights.sum())
    return " ".join(WORDS[number] for number in numbers).encode()


def split_at_spaces(text: bytes, count: int) -> list[np.ndarray]:
    """Cut the text into about equal chunks of bytes, between words."""
    cuts = [0] + [text.index(b" ", i * len(text) // count) for i in range(1, count)] + [len(text)]
    return [np.frombuffer(text[start:end], np.uint8) for start, end in itertools.pairwise(cuts)]


@stf.task
def count(chunk: stf.Read, histogram: stf.Accumulate[stf.reducer.sum]) -> None:
    for word, occurrences in collections.Counter(chunk.tobytes().split()).items():
        histogram[IDS[word]] += occurrences


def main() -> None:
    text = make_text(50_000)
    with stf.context() as ctx:
        histogram = ctx.logical_data_zeros(len(WORDS), np.int64, name="histogram")
        for i, chunk in enumerate(split_at_spaces(text, CHUNKS)):
            count.on(ctx.devices[i % len(ctx.devices)])(ctx.logical_data(chunk, name=f"chunk {i}"), histogram)
        counts = histogram.numpy()
    expected = collections.Counter(text.split())
    assert {word: counts[number] for word, number in IDS.items()} == expected
    print(", ".join(f"{WORDS[i]} {counts[i]}" for i in np.argsort(-counts)[:5]))


if __name__ == "__main__":
    main()
