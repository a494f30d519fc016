"""A task fails; what depends on it says so, what does not goes on, and a write heals.

A --> invert(A) raises --> A poisoned --> total(A) --> sum: skipped, poisoned too
                              |
                              '--> set_to(A, 4): a pure write heals A --> total(A) --> sum = 4000

B --> double(B) --> B           has nothing to do with A, and is written back
"""

import numpy as np

import stf


@stf.task
def invert(a: stf.ReadWrite) -> None:
    if (a == 0).any():
        raise ZeroDivisionError("there is a zero in A")
    a[...] = 1.0 / a


@stf.task
def total(a: stf.Read, result: stf.Write) -> None:
    result[...] = a.sum()


@stf.task
def double(b: stf.ReadWrite) -> None:
    b *= 2.0


@stf.task
def set_to(a: stf.Write, value: float) -> None:
    a[...] = value


def main() -> None:
    A, B = np.zeros(1000), np.full(1000, 3.0)
    with stf.context() as ctx:
        a, b = ctx.logical_data(A, name="A"), ctx.logical_data(B, name="B")
        result = ctx.logical_data_empty((), np.float64, name="sum")

        # A task raises in its call or later, as the device has it: at the latest where its result is asked for.
        failure = None
        try:
            invert(a)
            total(a, result)
            result.numpy()
        except stf.TaskFailedError as error:
            failure = error
        assert failure is not None
        assert "invert" in str(failure), failure  # the task that raised, not the one that was skipped
        assert "07_exception_survived.py" in str(failure), failure  # and the line that submitted it
        assert isinstance(failure.__cause__, ZeroDivisionError)
        print(f"failed as expected: {failure}")

        double(b)
        assert np.all(b.numpy() == 6.0)

        set_to(a, 4.0)
        total(a, result)
        assert float(result) == 4000.0
    assert np.all(B == 6.0)
    assert np.all(A == 4.0)
    print("B was doubled, and A is healed")


if __name__ == "__main__":
    main()
