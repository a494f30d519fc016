"""Tasks that return new data: shapes, types, errors, failures, recordings, and what is freed."""

import dataclasses
import gc
import threading
import typing

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


@stf.task
def scaled(s: float, a: stf.Read) -> typing.Annotated[stf.Result, stf.Like["a"]]:
    return s * a


@dataclasses.dataclass
class Ends:
    low: typing.Annotated[stf.Result, stf.New["(m,n)->()"]]
    high: "typing.Annotated[stf.Result, 'the largest', stf.New['(m,n)->()']]"


def test_annotations_for_type_checkers(ctx):
    @stf.task
    def ends(a: stf.Read) -> Ends:
        return Ends(a.min(), a.max())

    @stf.task
    def both(a: stf.Read) -> tuple[typing.Annotated[stf.Result, stf.Like["a"]], stf.Like["a", np.float32]]:
        return -a, a.astype(np.float32)

    @stf.task
    def quoted(a: stf.Read) -> "typing.Annotated[stf.Result, stf.Like[a, np.float32]]":
        return a.astype(np.float32)

    @stf.task
    def other(a: stf.Read, b: stf.Write) -> typing.Annotated[np.ndarray, "is stored in b"]:
        return a + 1

    a, b = ctx.logical_data(A, write_back=False), ctx.logical_data_empty(A.shape)
    np.testing.assert_array_equal(scaled(2.0, a).numpy(), 2 * A)
    found = ends(a)
    assert isinstance(found, Ends) and (float(found.low), float(found.high)) == (0.0, 5.0)
    one, two = both(a)
    assert one.dtype == np.float64 and two.dtype == np.float32
    np.testing.assert_array_equal(one.numpy(), -two.numpy())
    assert quoted(a).dtype == np.float32
    assert isinstance(other(a, b), stf.Task)
    np.testing.assert_array_equal(b.numpy(), A + 1)


def test_annotations_for_type_checkers_that_say_no_shape():
    @stf.task
    def open_shape(a: stf.Read) -> typing.Annotated[stf.Result, stf.New]:
        return a[a > 1]

    with stf.context(devices="cpu") as ctx:
        a = ctx.logical_data(A, write_back=False)
        assert open_shape(a).numpy().tolist() == [2.0, 3.0, 4.0, 5.0]
        for annotation in (stf.Result, typing.Annotated[stf.Result, "a"], tuple[stf.Result, stf.Result]):

            def wrong(a: stf.Read):
                return a

            wrong.__annotations__["return"] = annotation
            with pytest.raises(TypeError, match=r"says no shape; write Annotated\[stf.Result, stf.Like\['a'\]\]"):
                stf.task(wrong)(a)
    with pytest.raises(TypeError, match="stf.Result is an annotation"):
        stf.Result()


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


def test_calls_that_are_wrong_leave_nothing_for_the_next(ctx, ctx_factory):
    """The list of a call's arguments is kept for the next call."""
    a, b = ctx.logical_data(A, write_back=False), ctx.logical_data(A + 1, write_back=False)
    other = ctx_factory()
    for _ in range(3):
        with pytest.raises(stf.ContextMismatchError):
            gemm(other.logical_data(A, write_back=False), ctx.logical_data(B, write_back=False))
        with pytest.raises(TypeError, match="no access mode"):
            scale(a, a)
        with pytest.raises(TypeError, match="missing a required argument"):
            scale(2.0)
        np.testing.assert_array_equal(scale(3.0, b).numpy(), 3 * (A + 1))
        np.testing.assert_array_equal(scale(a=a, s=2.0).numpy(), 2 * A)


def test_objects_of_calls_are_used_again():
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.zeros(4))
        counts = []
        for _ in range(6):
            y = x
            for _ in range(500):
                y = scale(1.0, y)
            ctx.synchronize()
            assert y.numpy().tolist() == [0.0] * 4
            del y
            ctx.synchronize()
            gc.collect()
            counts.append((len(gc.get_objects()), len(ctx.engine.coherency.data)))
            ctx.check_state()
        assert counts[-1][1] <= counts[2][1] and counts[-1][0] <= counts[2][0] + 50, counts


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


# -- memory ----------------------------------------------------------------------------------------------------------


def address(array):
    return array.__array_interface__["data"][0]


def test_what_a_body_returns_becomes_the_memory_of_new_data():
    seen = {}

    @stf.task
    def make(a: stf.Read) -> stf.Like["a"]:  # noqa: F821
        found = a + 1
        seen["made"] = address(found)
        return found

    @stf.task
    def look(a: stf.Read):
        seen["read"] = address(a)
        assert not a.flags.writeable

    @stf.task
    def change(a: stf.ReadWrite):
        seen["written"] = address(a)
        a += 1

    with stf.context(devices="cpu") as ctx:
        made = make(ctx.logical_data(A, write_back=False))
        look(made), change(made)
        np.testing.assert_array_equal(made.numpy(), A + 2)
        before = ctx.statistics().allocations
        np.testing.assert_array_equal(make(made).numpy(), A + 3)
        assert ctx.statistics().allocations == before
    assert seen["read"] == seen["written"]


KEPT = np.ones((2, 3))


@stf.task
def kept(a: stf.Read) -> stf.Like["a"]:  # noqa: F821
    return KEPT


@stf.task
def twice(a: stf.Read) -> tuple[stf.Like["a"], stf.Like["a"]]:  # noqa: F821
    found = a + 1
    return found, found


@stf.task
def view(a: stf.Read) -> stf.Like["a"]:  # noqa: F821
    return (a + 1)[::-1]


@stf.task
def number(a: stf.Read) -> stf.Like["a"]:  # noqa: F821
    return 3


def test_arrays_that_others_have_are_copied(ctx):
    a = ctx.logical_data(A, write_back=False)
    found = kept.on("host")(a)
    increment.on("host")(found)
    np.testing.assert_array_equal(found.numpy(), np.full((2, 3), 2.0))
    np.testing.assert_array_equal(KEPT, 1.0)
    one, other = twice(a)
    increment(one)
    np.testing.assert_array_equal(one.numpy(), A + 2)
    np.testing.assert_array_equal(other.numpy(), A + 1)
    np.testing.assert_array_equal(view(a).numpy(), (A + 1)[::-1])
    np.testing.assert_array_equal(number(a).numpy(), np.full((2, 3), 3.0))


def late(name, latch=None):
    """Return a task that makes new data when a latch is open."""

    def body(a: stf.Read) -> stf.Like["a"]:  # noqa: F821
        if latch is not None:
            latch.wait(60)
        return a + 1

    return stf.task(body, name=name)


def test_who_needs_the_memory_before_the_body_returns():
    """Copies, tiles, kernels, with-blocks, recordings and other places get it at once; the body stores its result."""
    with stf.context(devices="cpu:2") as ctx:
        latch = threading.Event()
        slow = late("slow", latch)
        a = ctx.logical_data(A, write_back=False)
        target = ctx.logical_data_empty(A.shape)
        ctx.copy(slow(a), target)
        elsewhere = scale.on(1)(2.0, slow.on(0)(a))
        frozen = slow(a)
        read = ctx.submit_task(scale, 1.0, slow(a))
        tiled = slow(a)
        tiles = tiled.tiles((1, 3))
        increment(tiles[0, 0])
        threading.Timer(0.05, latch.set).start()
        np.testing.assert_array_equal(target.numpy(), A + 1)
        np.testing.assert_array_equal(elsewhere.numpy(), 2 * (A + 1))
        np.testing.assert_array_equal(read.numpy(), A + 1)
        with ctx.freeze(frozen) as held:
            np.testing.assert_array_equal(held.get(), A + 1)
        del tiles
        np.testing.assert_array_equal(tiled.numpy(), A + 1 + np.array([[1.0], [0.0]]))
        ctx.check_state()


def test_memory_for_a_result_is_in_use_by_nobody():
    """A copy asks for it before the body returns, which comes after no other use of spare memory."""
    with stf.context(devices="cpu", workers=2) as ctx:
        begun, stored, seen = threading.Event(), threading.Event(), []

        @stf.task
        def fill(a: stf.Write):
            a[...] = 1

        @stf.task
        def read(*arrays: stf.Read):
            begun.set()
            stored.wait(10)
            seen.extend(array.tolist() for array in arrays)

        many = [ctx.logical_data_empty(A.shape) for _ in range(70)]  # more than there may be spare
        for data in many:
            fill(data)
        read(*many)
        assert begun.wait(60)
        for data in many:
            data.release()
        latch = threading.Event()
        made, target = late("slow", latch)(ctx.logical_data(A, write_back=False)), ctx.logical_data_empty(A.shape)
        ctx.copy(made, target)
        latch.set()
        np.testing.assert_array_equal(made.numpy(), A + 1)
        stored.set()
        ctx.synchronize()
        assert seen == [np.ones(A.shape).tolist()] * 70


def test_data_that_are_dropped_before_their_readers_have_run():
    with stf.context(devices="cpu:2", workers=2) as ctx:
        latch = threading.Event()
        a = late("slow", latch)(ctx.logical_data(A, write_back=False))
        chain = [late(str(i))(late(str(i))(a)) for i in range(20)]
        gc.collect()
        latch.set()
        for data in chain:
            np.testing.assert_array_equal(data.numpy(), A + 3)


def test_failed_data_that_are_accepted_or_written_anew():
    @stf.task
    def fail(a: stf.Read) -> stf.Like["a"]:
        raise ValueError("on purpose")

    @stf.task
    def write(x: stf.Write):
        x[:] = 7

    with stf.context(devices="cpu") as ctx:
        a = ctx.logical_data(A, write_back=False)
        accepted, healed = fail(a), fail(a)
        with pytest.raises(ExceptionGroup, match="2 tasks failed"):
            ctx.synchronize()
        assert accepted.accept().numpy().shape == A.shape
        write(healed)
        np.testing.assert_array_equal(scale(1.0, healed).numpy(), np.full(A.shape, 7.0))


# -- containers ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Halves:
    low: stf.Like["a"]  # noqa: F821
    high: stf.New["(m,k)->(m)"]  # noqa: F722


class Pair(typing.NamedTuple):
    low: stf.Like["a"]  # noqa: F821
    high: stf.New["(m,k)->(m)"]  # noqa: F722


@stf.task
def as_dict(a: stf.Read) -> {"low": stf.Like["a"], "high": stf.New["(m,k)->(m)"]}:  # noqa: F722, F821
    return {"high": a.sum(axis=1), "low": a + 1}


@stf.task
def as_fields(a: stf.Read) -> Halves:
    return Halves(low=a + 1, high=a.sum(axis=1))


@stf.task
def as_pair(a: stf.Read) -> Pair:
    return Pair(low=a + 1, high=a.sum(axis=1))


def test_containers_of_results(ctx):
    a = ctx.logical_data(A, write_back=False)
    for found in (as_dict(a), vars(as_fields(a)), as_pair(a)._asdict()):
        assert list(found) == ["low", "high"]
        np.testing.assert_array_equal(found["low"].numpy(), A + 1)
        np.testing.assert_array_equal(found["high"].numpy(), A.sum(axis=1))
    assert isinstance(as_fields(a), Halves) and isinstance(as_pair(a), Pair)


def test_containers_that_a_body_does_not_return():
    @stf.task
    def other_keys(a: stf.Read) -> {"low": stf.Like["a"]}:  # noqa: F821
        return {"lower": a}

    @stf.task
    def one_for_two(a: stf.Read) -> Halves:
        return a

    @stf.task
    def too_many(a: stf.Read) -> tuple[stf.Like["a"], stf.Like["a"]]:
        return a, a, a

    with stf.context(devices="cpu") as ctx:
        a = ctx.logical_data(A, write_back=False)
        for found, message in [
            (other_keys(a)["low"], r"a dict with the keys \['low'\], got \['lower'\]"),
            (one_for_two(a).low, "is to return a Halves, got ndarray"),
            (too_many(a)[0], "is to return 2 results, got 3 results"),
        ]:
            with pytest.raises(stf.TaskFailedError, match=message):
                found.numpy()


# -- replayed functions ----------------------------------------------------------------------------------------------


def test_a_replayed_call_leaves_alone_what_its_user_holds_of_the_last_ones(ctx):
    @stf.replay
    def program(x, s):
        return scale(s, scale(2.0, x))

    a = ctx.logical_data(A.copy(), write_back=False)
    held = [program(a, float(k)) for k in range(7)]
    for k, data in enumerate(held):
        np.testing.assert_array_equal(data.numpy(), 2.0 * k * A)
    assert "1 recordings" in program.explain()
    assert len({id(data) for data in held}) == 7
    last = None
    for k in range(6):
        last = program(a, float(k))  # the last one is dropped after the call
        increment(a)
    np.testing.assert_array_equal(last.numpy(), 2.0 * 5 * (A + 5))


def test_replayed_calls_that_return_several_data(ctx):
    @stf.replay
    def program(x):
        more, sums = split(x)
        return {"more": more, "sums": [sums]}

    a = ctx.logical_data(A.copy(), write_back=False)
    held = []
    for _ in range(5):
        held.append(program(a))
        increment(a)
    for k, found in enumerate(held):
        np.testing.assert_array_equal(found["more"].numpy(), A + k + 1)
        np.testing.assert_allclose(found["sums"][0].numpy(), (A + k).sum(axis=1))


# -- shapes that a body finds ----------------------------------------------------------------------------------------


@stf.task
def positive(a: stf.Read) -> stf.New:
    return a[a > 0]


@stf.task
def doubled(a: stf.Read) -> stf.New:
    return 2 * a


@stf.task
def sum_of(a: stf.Read, out: stf.Write):
    out[...] = a.sum()


@pytest.mark.parametrize("devices", ["cpu", "cpu:2"])
def test_a_shape_that_the_body_finds(devices):
    with stf.context(devices=devices, workers=2) as ctx:
        latch = threading.Event()

        @stf.task
        def late_positive(a: stf.Read) -> stf.New:
            latch.wait(60)
            return a[a > 2]

        a, out = ctx.logical_data(A, write_back=False), ctx.logical_data(np.zeros(()), write_back=False)
        found = late_positive(a)
        twice = doubled(found)
        sum_of(twice, out), increment(found)  # nobody waits
        assert "not known yet" in repr(found)
        latch.set()
        assert found.shape == (3,) and twice.dtype == np.float64
        assert float(out) == 24.0
        np.testing.assert_array_equal(found.numpy(), [4, 5, 6])
        np.testing.assert_array_equal(scale(2.0, found).numpy(), [8, 10, 12])
        if len(ctx.devices) > 1:
            with pytest.raises(TypeError, match="say the shape in its annotation"):
                doubled.on(1)(positive.on(0)(a))
        assert [part.tolist() for part in ctx.wait(stf.map(positive, [a, a]))] == [[1, 2, 3, 4, 5]] * 2
        ctx.check_state()


def test_who_needs_a_shape_before_is_told_what_to_write():
    with stf.context(devices="cpu") as ctx:
        a = ctx.logical_data(A, write_back=False)
        for use in (
            lambda x: scale(1.0, x),
            lambda x: ctx.task(x.read()),
            lambda x: ctx.freeze(x),
            lambda x: x.accumulate(stf.reducer.sum),
            lambda x: ctx.submit_task(sum_of, [x], a),
        ):
            with pytest.raises(TypeError, match=r"task 'positive' at .*; say the shape in its annotation"):
                use(positive(a))
        with pytest.raises(TypeError, match=r"whose shape is known when it has run"), ctx.task_graph():
            positive(a)
        with pytest.raises(TypeError, match="returned None this time"):

            @stf.task
            def nothing(a: stf.Read) -> stf.New:
                return None

            try:
                nothing(a).numpy()
            except stf.TaskFailedError as error:
                raise error.__cause__ from None


def test_on_a_device_the_shape_must_be_known(ctx):
    if ctx.on_cuda:
        with pytest.raises(TypeError, match="that is for bodies on a CPU"):
            positive.on(0)(ctx.logical_data(A, write_back=False))


# -- bodies that write into the memory of their results --------------------------------------------------------------


@stf.task
def scaled_into(s, a: stf.Read, out) -> stf.Like["a"]:  # noqa: F821
    out[...] = s * a


@stf.task
def split_into(a: stf.Read, *, out) -> tuple[stf.Like["a"], stf.New[lambda a: a.shape[:1]]]:  # noqa: F821
    same, first = out
    same[...] = a
    first[...] = a[:, 0]
    return out


def test_a_body_writes_into_out(ctx):
    a = ctx.logical_data(A, write_back=False)
    assert np.array_equal(ctx.wait(scaled_into(3.0, scaled_into(2.0, a))), 6 * A)
    same, first = split_into(a)
    assert np.array_equal(ctx.wait(same), A) and np.array_equal(ctx.wait(first), A[:, 0])
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        scaled_into(2.0, a, out=a)


def test_out_in_recordings(ctx_factory):
    ctx = ctx_factory()
    a, b, c = (ctx.logical_data(A * (1 + i), write_back=False) for i in range(3))
    g = ctx.task_graph()
    with g:
        same, _ = split_into(scaled_into(2.0, a))
        ctx.copy(same, c)
    g.launch()
    assert np.array_equal(ctx.wait(c), 2 * A)
    g.launch({a: b})
    assert np.array_equal(ctx.wait(c), 4 * A)


def test_what_out_cannot_be(ctx):
    a = ctx.logical_data(A, write_back=False)

    def first(out, a: stf.Read) -> stf.Like["a"]:
        out[...] = a

    def unused(a: stf.Read, out) -> stf.Like["a"]:
        return a

    def rebound(a: stf.Read, out) -> stf.Like["a"]:
        out = out + a
        print(out)

    def unknown(a: stf.Read, out) -> stf.New:
        out[...] = a

    for fn, text in [
        (first, "make it the last parameter"),
        (unused, "does not use 'out'"),
        (rebound, "binds its parameter 'out' to something else"),
        (unknown, "whose shape nobody knows before it runs"),
    ]:
        with pytest.raises(TypeError, match=text):
            stf.task(fn)(a)


def test_a_body_with_out_that_returns_something_else():
    @stf.task
    def both(a: stf.Read, out) -> stf.Like["a"]:  # noqa: F821
        out[...] = a
        return 2 * a

    with stf.context(devices="cpu") as ctx, pytest.raises(stf.TaskFailedError, match="writes into 'out' and returns"):
        both(ctx.logical_data(A, write_back=False)).numpy()


def test_out_without_results_is_an_argument(ctx):
    @stf.task
    def put(a: stf.Write, out):
        a[...] = out

    a = ctx.logical_data_empty(3)
    put(a, 2.0)
    assert ctx.wait(a).tolist() == [2.0, 2.0, 2.0]


def test_out_may_be_augmented(ctx):
    @stf.task
    def next_of(x: stf.Read, out) -> stf.Like["x"]:
        out[...] = x
        out += 1

    @stf.task
    def both(x: stf.ReadWrite, out) -> stf.Like["x"]:
        x += 1
        out[...] = x

    x = ctx.logical_data(np.arange(3.0))
    assert next_of.on("host")(x).numpy().tolist() == [1.0, 2.0, 3.0]
    assert both.on("host")(x).numpy().tolist() == [1.0, 2.0, 3.0] == x.numpy().tolist()
