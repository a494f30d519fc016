"""Random numbers as a function of a key and a counter: Philox 4x32-10, and what is made of its bits.

J. Salmon, M. Moraes, R. Dror, D. Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11. A number depends on its
key and its counter alone. So it is the same on each device, in each order, for each cut of the work.

The functions here are the only implementation. NumPy runs them on arrays, Numba compiles them for a CPU and for a GPU.
All use the same operations in the same order: `mul` and `add` are names that each compiler gives a meaning, since a GPU
would contract ``a * b + c`` to one rounding. Division and square root are rounded correctly everywhere. So the bits are
equal everywhere.

Normal numbers are the inverse of their distribution, by M. Wichura's algorithm AS 241 (Applied Statistics 37, 1988),
with a logarithm of our own. Tried instead: the method of Box and Muller. It needs cosines, whose last bit differs
between the libraries of a CPU and a GPU. Rejection (ziggurat) needs several numbers for some elements.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

__all__ = ["FUNCTIONS", "key_of", "normal_from", "philox", "uniform_from"]

MASK = np.uint64(0xFFFFFFFF)
M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
ONE, N11, N12, N32, N53 = map(np.uint64, (1, 11, 12, 32, 53))
HALF_52, LAST_52 = np.uint64(1 << 51), np.uint64((1 << 52) - 1)
PER_53, PER_52 = 2.0**-53, 2.0**-52
SQRT_2, LN_2 = 1.4142135623730951, 0.6931471805599453
mul: Any = operator.mul
add: Any = operator.add
where: Any = np.where
sqrt: Any = np.sqrt


def philox(k0: Any, k1: Any, c0: Any, c1: Any, c2: Any, c3: Any) -> Any:
    """Return the four words of a counter and a key; all are 32 bits in 64."""
    for _ in range(10):
        p0, p1 = M0 * c0, M1 * c2
        c0, c1, c2, c3 = (p1 >> N32) ^ c1 ^ k0, p1 & MASK, (p0 >> N32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + W0) & MASK, (k1 + W1) & MASK
    return c0, c1, c2, c3


def uniform_from(high: Any, low: Any) -> Any:
    """Return a number in [0, 1) of 53 of the bits of two words."""
    return mul((((high << N32) | low) >> N11) * 1.0, PER_53)


def log_of(n: Any) -> Any:
    """Return the logarithm of ``n / 2**53``, for an integer n of 53 bits that is not 0."""
    e = n * 0.0
    for shift in (32, 16, 8, 4, 2, 1):
        small = n < (ONE << (N53 - np.uint64(shift)))
        n = where(small, n << np.uint64(shift), n)
        e = where(small, e - shift, e)
    f = mul(n * 1.0, PER_52)  # in [1, 2)
    e = e - 1.0
    big = f > SQRT_2
    f, e = where(big, mul(f, 0.5), f), where(big, e + 1.0, e)
    s = (f - 1.0) / (f + 1.0)
    z = mul(s, s)
    p = add(mul(z, 1.0 / 23.0), 1.0 / 21.0)
    p = add(mul(z, p), 1.0 / 19.0)
    p = add(mul(z, p), 1.0 / 17.0)
    p = add(mul(z, p), 1.0 / 15.0)
    p = add(mul(z, p), 1.0 / 13.0)
    p = add(mul(z, p), 1.0 / 11.0)
    p = add(mul(z, p), 1.0 / 9.0)
    p = add(mul(z, p), 1.0 / 7.0)
    p = add(mul(z, p), 1.0 / 5.0)
    p = add(mul(z, p), 1.0 / 3.0)
    p = add(mul(z, p), 1.0)
    return add(mul(e, LN_2), mul(mul(2.0, s), p))


def horner(x: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """Return a polynomial; the first coefficient is that of the highest power."""
    p = add(mul(a, x), b)
    p = add(mul(p, x), c)
    p = add(mul(p, x), d)
    p = add(mul(p, x), e)
    p = add(mul(p, x), f)
    p = add(mul(p, x), g)
    return add(mul(p, x), h)


def central(q: Any) -> Any:
    """Return the quantile of a probability ``0.5 + q``, of at most 0.425 on either side."""
    r = add(0.180625, -mul(q, q))
    over = horner(
        r,
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080e0,
    )
    under = horner(
        r,
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    )
    return mul(q, over) / under


def middle(r: Any) -> Any:
    """Return the quantile of a probability whose ``sqrt(-log)`` is at most 5."""
    r = r - 1.6
    over = horner(
        r,
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e0,
        3.64784832476320460504e0,
        5.76949722146069140550e0,
        4.63033784615654529590e0,
        1.42343711074968357734e0,
    )
    under = horner(
        r,
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e0,
        2.05319162663775882187e0,
        1.0,
    )
    return over / under


def far(r: Any) -> Any:
    """Return the quantile of a smaller probability."""
    r = r - 5.0
    over = horner(
        r,
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580e0,
        5.46378491116411436990e0,
        6.65790464350110377720e0,
    )
    under = horner(
        r,
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    )
    return over / under


def normal_from(high: Any, low: Any) -> Any:
    """Return a normal number of 52 of the bits of two words."""
    m = ((high << N32) | low) >> N12
    is_high = m >= HALF_52
    n = (where(is_high, LAST_52 - m, m) << ONE) | ONE  # the probability of the tail, times 2**53
    r = sqrt(-log_of(n))
    tail = where(r <= 5.0, middle(r), far(r))
    q = add(mul((m * 1.0), PER_52), PER_53 - 0.5)
    return where(abs(q) <= 0.425, central(q), where(is_high, tail, -tail))


FUNCTIONS = (philox, uniform_from, log_of, horner, central, middle, far, normal_from)  # in the order of their calls


def key_of(seed: int, name: str) -> int:
    """Return 64 bits that depend on a seed and a name."""
    import hashlib  # which takes its time, and few programs need

    text = f"{seed}\0{name}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=b"stf.random").digest(), "little")
