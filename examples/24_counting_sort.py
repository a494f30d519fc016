"""A histogram and a scan by `launch`, with memory of groups and barriers; together they sort bytes by counting.

keys --histogram--> counts --scan--> starts --place--> order
"""

import numpy as np

import stf
from stf import con, mem, par

N, BINS = 200_000, 256


def main() -> None:
    keys = np.random.default_rng(7).normal(128, 40, N).clip(0, BINS - 1).astype(np.int64)
    with stf.context() as ctx:
        lkeys, lorder = ctx.logical_data(keys), ctx.logical_data_empty(N, np.int64)
        counts, starts = ctx.logical_data_empty((8, BINS), np.int64), ctx.logical_data_empty((8, BINS), np.int64)

        # 8 groups, each with a histogram of its own in memory that its 32 threads share
        @ctx.launch(par(8, con(32, mem(32 * BINS * 8))), lkeys.read(), counts.write())
        def histogram(th, keys, counts):
            mine = th.storage(1, np.int64)
            group, thread, width = th.rank(0), th.rank(1), th.size(1)
            for b in range(BINS):
                mine[thread * BINS + b] = 0
            first, last = group * keys.size // th.size(0), (group + 1) * keys.size // th.size(0)
            for i in range(first + thread, last, width):
                mine[thread * BINS + keys[i]] += 1
            th.sync(1)
            for b in range(thread, BINS, width):
                total = 0
                for other in range(width):
                    total += mine[other * BINS + b]
                counts[group, b] = total

        # one group: where the keys of each bin begin, of each group, by sums that double their reach (Hillis and Steele)
        @ctx.launch(con(BINS, mem(2 * BINS * 8)), counts.read(), starts.write())
        def scan(th, counts, starts):
            sums = th.storage(0, np.int64)
            b, here = th.rank(), 0
            total = 0
            for group in range(counts.shape[0]):
                total += counts[group, b]
            sums[b] = total
            reach = 1
            while reach < BINS:
                th.sync()
                there = BINS - here
                sums[there + b] = sums[here + b] + (sums[here + b - reach] if b >= reach else 0)
                here, reach = there, 2 * reach
            start = sums[here + b] - total
            for group in range(counts.shape[0]):
                starts[group, b] = start
                start += counts[group, b]

        # each group puts its keys in place, in the order of the input
        @ctx.launch(par(8, par(1, mem(BINS * 8))), lkeys.read(), starts.read(), lorder.write())
        def place(th, keys, starts, output):
            group, following = th.rank(0), th.storage(1, np.int64)
            for b in range(BINS):
                following[b] = starts[group, b]
            for i in range(group * keys.size // th.size(0), (group + 1) * keys.size // th.size(0)):
                output[following[keys[i]]] = i
                following[keys[i]] += 1

        totals, order = counts.numpy().sum(axis=0), lorder.numpy()
    print(f"{N} keys in {BINS} bins, at most {totals.max()} in one")
    assert np.array_equal(totals, np.bincount(keys, minlength=BINS))
    assert np.array_equal(order, np.argsort(keys, kind="stable"))


if __name__ == "__main__":
    main()
