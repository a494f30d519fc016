"""Partitioned data on CUDA: one range of addresses, pages of each device, and what happens when these run out."""

from __future__ import annotations

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("the stand-in is made of Linux's threads and mmap", allow_module_level=True)

# The bodies below run elsewhere, with the names of the prelude of `conftest`.
# ruff: noqa: F821


def before():
    PAGE = 2 << 20  # noqa: F841

    def composite(places, part="blocked"):
        return stf.data_place.composite(stf.exec_place.grid(places), stf.partition(part))

    def mapped():
        return {kind: fakecuda.counts()[kind] for kind in ("reservations", "mappings", "physicals")}


def test_each_part_lies_in_pages_of_its_device(run):
    def body():
        X = np.arange(3 * PAGE // 8, dtype=np.int64)  # a page and a half for each
        with stf.context(devices="cuda:0,1") as ctx:
            x = ctx.logical_data(X, data_place=composite([0, 1]), write_back=False)
            assert mapped() == {"reservations": 1, "mappings": 2, "physicals": 0}
            assert all(ctx.statistics().peak_bytes[f"device({i})"] == X.nbytes // 2 for i in range(2))
            for part in x.parts:
                ctx.task(part.exec_place, part.rw())(lambda a: a + 1)
            expected = X + 1  # of which the host gets a copy in X
            assert (ctx.wait(x) == expected).all()
            with ctx.task(1, x.read(x.data_place)) as t:
                whole = t[0].data.ptr
            with ctx.task(1, x.parts[1].read(halo=1)) as t:
                assert t[0].data.ptr == whole + X.nbytes // 2 - 8
            with ctx.task(0, x.parts[0].read()) as t:
                assert t[0].data.ptr == whole
        nothing_left()

    run(body, before)


def test_addresses_are_kept_for_the_next_array_of_that_shape(run):
    def body():
        with stf.context(devices="cuda:0,1") as ctx:
            for step in range(4):
                x = ctx.logical_data(np.zeros(PAGE // 4), data_place=composite([0, 1]), write_back=False)
                for part in x.parts:
                    ctx.fill(part, step)
                assert (ctx.wait(x) == step).all()
                x.release()
            assert fakecuda.calls("cuMemCreate") == 2
            ctx.logical_data(np.zeros(PAGE // 2), data_place=composite([0, 1]), write_back=False)
            assert fakecuda.calls("cuMemCreate") == 4
            assert mapped()["reservations"] == 2
        nothing_left()

    run(body, before)


def test_what_is_kept_goes_when_memory_runs_out(run):
    def body():
        with stf.context(devices="cuda:0,1") as ctx:
            x = ctx.logical_data(np.zeros(PAGE // 2), data_place=composite([0, 1]), write_back=False)
            x.release()
            ctx.synchronize()
            assert mapped()["reservations"] == 1
            y = ctx.logical_data_zeros(7 * PAGE // 8)
            with ctx.task(0, y.rw()):
                assert mapped()["reservations"] == 0
        nothing_left()

    run(body, before, FAKECUDA_MEMORY=str(8 * (2 << 20)))


@pytest.mark.parametrize("call", ["cuMemCreate:2", "cuMemMap:3", "cuMemSetAccess:3", "cuMemCreate:1"])
def test_a_mapping_that_fails_halfway_leaves_nothing(run, call):
    def body():
        name, nth = os.environ["PLAN"].split(":")
        with stf.context(devices="cuda:0,1") as ctx:
            for lasting in (False, True):
                fakecuda.reset_calls(f"{name}:{nth}{'+' * lasting}")
                X = np.zeros(3 * PAGE // 8)
                place = composite([0, 1, 0])
                if not lasting:
                    assert ctx.logical_data(X, data_place=place, write_back=False).parts.shape == (3,)  # tried again
                else:
                    with pytest.raises(stf.OutOfMemoryError):
                        ctx.logical_data(X, data_place=place, write_back=False)
                fakecuda.reset_calls()
                del X
                gc.collect()
                ctx.synchronize()
            x = ctx.logical_data(np.ones(3 * PAGE // 8), data_place=place, write_back=False)
            ctx.task(0, x.rw(x.data_place))(lambda a: a + 1)
            assert (ctx.wait(x) == 2).all()
        nothing_left()

    run(body, "import gc\n" + source_text(before), PLAN=call)


def source_text(function):
    import inspect
    import textwrap

    lines = inspect.getsource(function).split("\n", 1)[1]
    return textwrap.dedent(lines)


def test_without_peers_parts_have_memory_of_their_own(run):
    def body():
        with stf.context(devices="cuda:0,1") as ctx:
            X = np.arange(8.0)
            x = ctx.logical_data(X, data_place=composite([0, 1]))
            assert mapped()["reservations"] == 0
            for k, part in enumerate(x.parts):
                ctx.task(part.exec_place, part.rw())(lambda a, k=k: a + k)
            out = ctx.logical_data_empty(5, float)
            ctx.task(0, x.parts[0].read(halo=1), out.write())(lambda a, b: a)
            assert ctx.wait(out).tolist() == [0, 1, 2, 3, 5]
            ctx.task(0, x.rw(x.data_place))(lambda a: a * 2)
        assert X.tolist() == [0, 2, 4, 6, 10, 12, 14, 16]
        nothing_left()

    run(body, before, FAKECUDA_PEER="0")


def test_other_devices_of_the_context_use_it(run):
    def body():
        X = np.arange(12.0)
        with stf.context(devices="cuda:0,1,2") as ctx:
            x = ctx.logical_data(X, data_place=composite([0, 1]))
            for part in x.parts:
                ctx.task(2, part.rw())(lambda a: a + 1)  # brought there
            ctx.task(2, x.rw())(lambda a: a * 2)
            ctx.task(2, x.rw(x.data_place))(lambda a: a + 1)  # used where it lies
            ctx.copy(x, y := ctx.logical_data_empty(12, float))
            ctx.task(2, y.rw())(lambda a: a * 10)
            assert ctx.wait(y).tolist() == [(2 * (n + 1) + 1) * 10 for n in range(12)]
        assert X.tolist() == [2 * (n + 1) + 1 for n in range(12)]
        nothing_left()

    run(body, before, FAKECUDA_DEVICES="3")


def test_host_beside_devices(run):
    def body():
        with stf.context(devices="cuda:0,1") as ctx, pytest.raises(stf.PlaceError, match="the host beside devices"):
            ctx.logical_data(np.zeros(8), data_place=composite(["host", 0]))
        nothing_left()

    run(body, before)


def test_graphs_use_one_address(run):
    def body():
        X = np.zeros(12)
        with stf.context(devices="cuda:0,1") as ctx:
            x = ctx.logical_data(X, data_place=composite([0, 1, 0]))
            ctx.prefetch(x, x.data_place)
            with ctx.task_graph() as graph:
                for part in x.parts:
                    ctx.task(part.exec_place, part.rw())(lambda a: a + 1)
                ctx.task(1, x.rw(x.data_place))(lambda a: a * 2)
            for _ in range(3):
                graph.launch()
            assert ctx.wait(x).tolist() == [14.0] * 12
            graph.close()
        nothing_left()

    run(body, before)


def test_a_part_is_seen_at_the_indices_of_the_whole(run):
    def body():
        X = np.arange(12.0)
        with stf.context(devices="cuda:0,1") as ctx:
            x = ctx.logical_data(X, data_place=composite([0, 1, 0]))
            with ctx.task(0, x.read(x.data_place)) as t:
                whole = t[0].data.ptr
            for part in x.parts:  # what `parallel_for` gives a body that looks beyond its element
                own, seen = part.at_indices_of_whole("rw", (0,))
                assert seen is None
                with ctx.task(part.exec_place, own) as t:
                    assert (t[0].shape, t[0].data.ptr) == ((12,), whole)
                near, seen = part.at_indices_of_whole("read", (1,))
                with ctx.task(part.exec_place, near) as t:
                    assert (t[0].shape, t[0].data.ptr) == ((12,), whole)
            first = x.parts[0].at_indices_of_whole("rw", (0,))[0]
            last = x.parts[2].at_indices_of_whole("rw", (0,))[0]
            with ctx.task(0, first), ctx.task(0, last):
                pass  # tasks on parts do not wait for each other
            with ctx.task(0, first), pytest.raises(stf.TaskStateError):
                ctx.task(0, x.parts[1].at_indices_of_whole("read", (1,))[0]).__enter__()  # a neighbour
        nothing_left()

    run(body, before)
