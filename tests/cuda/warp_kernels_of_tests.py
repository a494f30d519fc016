"""Kernels of Warp for the tests: it reads their source, and the types of parameters as they are written."""

import warp as wp


@wp.kernel
def add(a: wp.float32, x: wp.array(dtype=wp.float32), y: wp.array(dtype=wp.float32)):
    i = wp.tid()
    y[i] = y[i] + a * x[i]
