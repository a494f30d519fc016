"""Tasks that return new data: shapes, types, errors, failures, recordings, and what is freed."""

import gc
import threading

import numpy as np
import pytest

import stf

A, B = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)


@stf.task
def gemm(a: stf.Read, b: stf.Read) -> stf.New["(m,k),(k,n)->(m,n)"]:  # noqa: F722
    return a @ b


@stf.task
def scale(s, a: stf.Read) -> stf.Like["a"]:  # noqa: F821
    return s * a


@stf.task
def split(a: stf.Read) -> tuple[stf.Like["a"], stf.New[lambda a: a.shape[:1], np.float32]]:  # noqa: F821
    return a + 1, a.sum(axis=1).astype(np.float32)


@stf.task
def increment(x: stf.ReadWrite):
    x += 1


def test_calls_compose(ctx):
    a, b = ctx.logical_data(A, write_back=False), ctx.logical_data(B, write_back=False)
    c = gemm(a, b)
    assert isinstance(c, stf.LogicalData) and c.shape == (2, 4) and c.dtype == np.float64
    d = scale(2.0, c)
    increment(d)
    np.testing.assert_array_equal(d.numpy(), 2.0 * (A @ B) + 1)
    np.testing.assert_array_equal(gemm(scale(3.0, a), b).numpy(), 3.0 * A @ B)


def test_several_results(ctx):
    a = ctx.logical_data(A, write_back=False)
    more, sums = split(a)
    assert more.dtype == np.float64 and sums.dtype == np.float32 and sums.shape == (2,)
    np.testing.assert_array_equal(more.numpy(), A + 1)
    np.testing.assert_array_equal(sums.numpy(), A.sum(axis=1, dtype=np.float32))


def test_every_place_and_way_of_calling(ctx):
    a = ctx.logical_data(A, write_back=False)
    for function in (scale.on("host"), scale.named("twice"), scale.on(ctx.devices[-1])):
        np.testing.assert_array_equal(function(2.0, a).numpy(), 2 * A)
    np.testing.assert_array_equal(scale(a=a, s=3.0).numpy(), 3 * A)
    np.testing.assert_array_equal(ctx.submit_task(scale, 4.0, a).numpy(), 4 * A)
    found = ctx.map(scale, [1.0, 2.0], [a, a])
    assert [data.numpy().tolist() for data in found] == [A.tolist(), (2 * A).tolist()]


class Model:
    def __init__(self, factor):
        self.factor = factor

    @stf.task
    def apply(self, a: stf.Read) -> stf.Like["a"]:  # noqa: F821
        return self.factor * a


def test_methods(ctx):
    a = ctx.logical_data(A, write_back=False)
    np.testing.assert_array_equal(Model(5.0).apply(a).numpy(), 5 * A)


def test_types_follow_from_the_arguments(ctx):
    @stf.task
    def add(a: stf.Read, b: stf.Read) -> stf.New["(n),(n)->(n)"]:  # noqa: F722
        return a + b

    @stf.task
    def fixed(a: stf.Read) -> stf.New["(n)->(n,2)", np.int8]:  # noqa: F722
        return np.stack([a, a], axis=1).astype(np.int8)

    @stf.task
    def scalar(a: stf.Read) -> stf.New["(n)->()"]:  # noqa: F722
        return a.sum()

    a, b = ctx.logical_data(np.arange(3, dtype=np.int16)), ctx.logical_data(np.arange(3, dtype=np.float32))
    assert add(a, b).dtype == np.float32 and add(a, b).numpy().tolist() == [0, 2, 4]
    assert fixed(a).dtype == np.int8 and fixed(a).numpy().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert scalar(b).shape == () and float(scalar(b)) == 3.0


def test_wrong_calls(ctx):
    a, b = ctx.logical_data(A, write_back=False), ctx.logical_data(B, write_back=False)
    with pytest.raises(ValueError, match=r"gemm.*b has 2 along 'k', and a has 3"):
        gemm(a, a)
    with pytest.raises(ValueError, match=r"takes a with 2 axes \(m, k\), got shape \(3,\)"):
        gemm(ctx.logical_data(np.zeros(3)), b)
    with pytest.raises(TypeError, match="takes logical data .*got float"):
        scale(2.0, 3.0)
    with pytest.raises(TypeError, match="takes logical data .*got ndarray; register the array"):
        ctx.submit_task(scale, 2.0, A)
    with pytest.raises(TypeError, match="token, which has no shape"):
        scale(2.0, ctx.token())
    assert gemm(a, b).shape == (2, 4)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (lambda: stf.Like["no name"], "takes the name of a parameter"),
        (lambda: stf.New["m,k"], "takes dimensions as"),
        (lambda: stf.New["(m)->(n)"], "dimension 'n' of the result is that of no argument"),
        (lambda: stf.New["(m!)->(m)"], "a dimension is a name or a number, got 'm!'"),
        (lambda: stf.New[3], "takes dimensions as"),
    ],
)
def test_wrong_annotations(annotation, message):
    with pytest.raises(TypeError, match=message):
        annotation()


def test_annotations_that_do_not_suit_the_function(ctx):
    a = ctx.logical_data(A, write_back=False)

    def returning(annotation):
        def body(a: stf.Read):
            return a + 1

        body.__annotations__["return"] = annotation
        return stf.task(body)

    for annotation, message in [
        (stf.Like["b"], "has no argument 'b'"),
        (stf.New[lambda b: b.shape], "asks for 'b'"),
        (stf.Like, "says no shape"),
        (stf.New, "says no shape"),
        (tuple[stf.Like["a"], int], "returns a tuple with <class 'int'>"),
    ]:
        with pytest.raises(TypeError, match=message):
            returning(annotation)(a)
    assert isinstance(returning(np.ndarray), type(gemm))


def test_what_a_body_returns_must_fit(ctx):
    @stf.task
    def nothing(a: stf.Read, is_empty) -> stf.Like["a"]:
        if not is_empty:
            return a + 1

    @stf.task
    def too_large(a: stf.Read) -> stf.Like["a"]:
        return a.reshape(-1)

    @stf.task
    def float_for_int(a: stf.Read) -> stf.Like["a"]:
        return a * 0.5

    a = ctx.logical_data(A, write_back=False)
    np.testing.assert_array_equal(nothing(a, False).numpy(), A + 1)
    integers = ctx.logical_data(np.arange(3), write_back=False)
    for call, message in [
        (lambda: nothing(a, True), "returned None this time"),
        (lambda: too_large(a), r"\(6,\)"),
        (lambda: float_for_int(integers), "float64"),
    ]:
        with pytest.raises(stf.TaskFailedError, match=message):
            call().numpy()


def test_a_failure_poisons_what_was_made_of_it():
    @stf.task
    def fail(a: stf.Read) -> stf.Like["a"]:
        raise ValueError("on purpose")

    with stf.context(devices="cpu:2") as ctx:
        a = ctx.logical_data(A, write_back=False)
        b = scale(2.0, fail(a))
        with pytest.raises(stf.TaskFailedError, match="on purpose"):
            b.numpy()
        np.testing.assert_array_equal(scale(2.0, a).numpy(), 2 * A)


def test_results_are_freed_after_their_last_use():
    with stf.context(devices="cpu:2", memory_limit=1 << 20) as ctx:
        a = ctx.logical_data(np.ones(1 << 14), write_back=False)
        for _ in range(50):
            a = scale(1.5, a)  # 128 KiB each
        assert np.isclose(a.numpy()[0], 1.5**50)
        ctx.synchronize()
        gc.collect()
        assert len(ctx.engine.coherency.data) < 10


def test_in_recordings(ctx):
    a = ctx.logical_data(A.copy(), write_back=False)
    out = ctx.logical_data(np.zeros_like(A), write_back=False)

    @stf.task
    def copy(x: stf.Read, y: stf.ReadWrite):
        y += x

    @stf.replay
    def program(a, out):
        b = scale(2.0, a)
        copy(scale(3.0, b), out)

    for _ in range(5):
        program(a, out)
        increment(a)
    expected = sum(6.0 * (A + step) for step in range(5))
    np.testing.assert_array_equal(out.numpy(), expected)


def test_many_threads():
    with stf.context(devices="cpu:3") as ctx:
        a = ctx.logical_data(A, write_back=False)
        found = {}

        def work(number):
            found[number] = scale(float(number), scale(2.0, a)).numpy()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, values in found.items():
            np.testing.assert_array_equal(values, 2.0 * number * A)
        assert len(found) == 8
