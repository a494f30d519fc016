"""Kernels of cuda.tile for the tests; it reads the types of parameters from a module's names."""

from cuda import tile


@tile.kernel
def add(x, y, size: tile.Constant[int]):
    i = tile.bid(0)
    a = tile.load(x, index=(i,), shape=(size,))
    b = tile.load(y, index=(i,), shape=(size,))
    tile.store(y, index=(i,), tile=a + b)
