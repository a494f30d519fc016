"""A Triton kernel: Triton reads its source, so it stands in a file of its own."""

import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)
