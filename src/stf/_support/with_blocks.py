"""With-blocks without bound methods.

Up to Python 3.13, ``with`` makes a bound method of ``__enter__`` and one of ``__exit__``, each tracked by the garbage
collector, to call it once: more than a tenth of an empty task. `bind_lightly` gives a compiled type descriptors that
bind to a smaller object, of which a few are kept; what is not a call goes to the method that Python would have made.
"""

from __future__ import annotations

import cython


def bind_lightly(kind):
    """Let ``with`` enter and leave objects of a compiled type at less cost; nothing where Python binds no methods."""
    if cython.compiled:
        stf_bind_lightly(kind, "__enter__")
        stf_bind_lightly(kind, "__exit__")
