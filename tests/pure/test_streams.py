"""What users call a stream, as its address: one reader, for contexts, places and raw memory."""

from __future__ import annotations

import types

import numpy as np
import pytest

from stf.interop.streams import pointer_of


class Speaks:
    """An object with the protocol, as a method or an attribute."""

    def __init__(self, told, method=True):
        self.__cuda_stream__ = (lambda: told) if method else told


@pytest.mark.parametrize(
    "stream",
    [
        64,
        np.int64(64),
        Speaks((0, 64)),
        Speaks((0, 64), method=False),
        Speaks((0, np.uint64(64))),
        types.SimpleNamespace(cuda_stream=64),
        types.SimpleNamespace(ptr=64),
    ],
)
def test_whatever_tells_it(stream):
    assert pointer_of(stream) == 64


@pytest.mark.parametrize(
    ("stream", "error", "message"),
    [
        (True, TypeError, "a stream is an int, .*; got True"),
        ("64", TypeError, "a stream is an int, .*; got '64'"),
        (None, TypeError, "a stream is an int, .*; got None"),
        (-1, ValueError, "a stream is an address from 0 on, of 64 bits, got -1"),
        (Speaks(5), TypeError, r"__cuda_stream__ of Speaks is \(0, address\), got 5"),
        (Speaks([0, 64]), TypeError, r"__cuda_stream__ of Speaks is \(0, address\), got \[0, 64\]"),
        (Speaks((1, 64)), TypeError, "__cuda_stream__ of Speaks is of version 1; this version of stf knows version 0"),
        (Speaks((0, "x")), TypeError, "__cuda_stream__ of Speaks gives the address of a stream as int, got 'x'"),
        (Speaks((0, -1)), ValueError, "a stream is an address from 0 on, of 64 bits, got -1"),
    ],
)
def test_what_is_no_stream(stream, error, message):
    with pytest.raises(error, match=message):
        pointer_of(stream)
