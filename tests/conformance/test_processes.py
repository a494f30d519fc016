"""What only a process of its own can show: its end, forks, and the settings of the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stf

DEVICES = [pytest.param("cpu", marks=pytest.mark.thorough), "cpu:3"]

ADD = """
@stf.task
def add(x: stf.ReadWrite, n=1):
    x += n
"""


@pytest.fixture(params=DEVICES)
def run(request, run_python):
    def run_on(code, *options, **environment):
        return run_python(ADD + code, *options, STF_DEVICES=request.param, **environment)

    return run_on


FORK = ("-W", "ignore:This process:DeprecationWarning")  # Python 3.12 warns of forks of processes with threads


def output(done):
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_context_open_at_exit_is_finalized(run):
    done = run(
        """
import atexit
X = np.zeros(3)
atexit.register(lambda: print(X.tolist()))
ctx = stf.context(name="late")
add(ctx.logical_data(X))
import sys
atexit.unregister(stf._engine.lifetime._at_exit)
atexit.register(stf._engine.lifetime._at_exit)
"""
    )
    assert output(done) == ["[1.0, 1.0, 1.0]"]


def test_every_context_open_at_exit_is_finalized(run):
    done = run(
        """
import atexit
X, Y = np.zeros(2), np.zeros(2)
atexit.register(lambda: print(X.tolist(), Y.tolist()))
atexit.unregister(stf._engine.lifetime._at_exit)
atexit.register(stf._engine.lifetime._at_exit)
@stf.task
def broken(x: stf.ReadWrite):
    raise RuntimeError("at the very end")
contexts = [stf.context() for _ in range(4)]
data = [c.logical_data(a) for c, a in zip(contexts, [X, np.zeros(1), np.zeros(1), Y])]
add(data[0]), broken(data[1]), broken(data[2]), add(data[3])
""",
        "-Werror::ResourceWarning",
    )
    assert done.stdout.splitlines() == ["[1.0, 1.0] [1.0, 1.0]"]
    assert "at the very end" in done.stderr and done.returncode == 1
    assert "was open at exit; finalize it" in done.stderr


@pytest.mark.parametrize("dropped", [False, True])
def test_a_program_that_never_hears_of_a_failure_exits_with_1(run, dropped):
    """After all that is done at exit, with what was printed."""
    done = run(
        f"""
import atexit
atexit.register(lambda: print("at exit", flush=False))
@stf.task
def broken(x: stf.ReadWrite):
    raise RuntimeError("nobody waits")
def main():
    context = stf.context()
    broken(context.logical_data(np.zeros(2)))
    return context
kept = main()
if {dropped}:
    del kept
print("over")
"""
    )
    assert done.stdout.splitlines() == ["over", "at exit"] and "nobody waits" in done.stderr
    assert done.returncode == 1


def test_a_program_that_has_heard_of_a_failure_exits_with_0(run):
    done = run(
        """
@stf.task
def broken(x: stf.ReadWrite):
    raise RuntimeError("somebody waits")
context = stf.context()
broken(context.logical_data(np.zeros(2)))
try:
    context.synchronize()
except stf.TaskFailedError as error:
    print(error.__cause__)
"""
    )
    assert done.stdout == "somebody waits\n" and done.returncode == 0


def test_resource_warning_at_exit(run):
    done = run("ctx = stf.context(name='late')\nadd(ctx.logical_data(np.zeros(2)))", "-Walways")
    assert done.returncode == 0
    assert "ResourceWarning: <stf.Context 'late' on cpu" in done.stderr and "was open at exit" in done.stderr


def test_a_daemon_thread_inside_a_block_does_not_keep_the_process(run):
    done = run(
        """
import threading, time
X, Y = np.zeros(2), np.zeros(2)
ctx = stf.context()
x, y = ctx.logical_data(X, name="X"), ctx.logical_data(Y)
inside = threading.Event()
def hold():
    with ctx.task(x.rw()):
        inside.set()
        time.sleep(1000)
threading.Thread(target=hold, daemon=True).start()
inside.wait()
add(y)
import atexit
atexit.register(lambda: print(Y.tolist()))
atexit.unregister(stf._engine.lifetime._at_exit)
atexit.register(stf._engine.lifetime._at_exit)
"""
    )
    assert done.stdout.splitlines() == ["[1.0, 1.0]"] and done.returncode == 1
    assert "was never ended; what it was to write is poisoned: 'X'" in done.stderr


@pytest.mark.parametrize("last", ["x.numpy()", "pass"])  # where the interrupt comes: in the block, or at its end
def test_the_first_interrupt_cancels_what_has_not_begun(run, last):
    done = run(
        """
import os, signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let jobs in the background ignore it
ran = []
begun = threading.Event()
def slow(x):
    begun.set()
    time.sleep(0.3)
    ran.append(1)
def interrupt():
    begun.wait()
    time.sleep(0.1)  # until the main thread waits: Python loses what comes just before that
    os.kill(os.getpid(), signal.SIGINT)
with stf.context() as ctx:
    import atexit
    atexit.register(lambda: print(len(ran)))
    x = ctx.logical_data(np.zeros(2))
    threading.Thread(target=interrupt).start()
    for _ in range(100):
        ctx.host_launch(x.rw())(slow)
    LAST
""".replace("LAST", last)
    )
    assert done.returncode == -2 and done.stdout.splitlines() == ["1"]
    told = "cancelled before they began, since the with-block of their context raised: task 'slow' ("
    assert told in done.stderr and "99 times" in done.stderr


def test_nothing_is_printed_when_all_is_well(run):
    done = run("with stf.context() as ctx:\n    add(ctx.logical_data(np.zeros(2)))\n", "-Werror")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_fork_closes_the_contexts_of_the_child(run):
    done = run(
        """
import os, sys
ctx = stf.context()
X, Y = np.zeros(2), np.zeros(2)
lX = ctx.logical_data(X)
add(lX)
ctx.synchronize()
pid = os.fork()
if pid == 0:
    told = []
    for attempt in (lambda: add(lX), lambda: ctx.wait(lX), ctx.fence, ctx.submit, ctx.token, ctx.synchronize,
                    lambda: ctx.logical_data(np.ones(1)), lambda: lX.write_back(), lambda: lX.release(),
                    lambda: ctx.freeze(lX), lambda: ctx.fill(lX, 0), lambda: lX.tiles(1)):
        try:
            attempt()
        except stf.ContextClosedError as error:
            told.append("forked" in str(error))
    ctx.finalize()
    with stf.context() as own:
        add(own.logical_data(Y), 7)
    del lX
    print(told, Y.tolist(), flush=True)
    sys.exit(0)
_, status = os.waitpid(pid, 0)
add(lX)
ctx.finalize()
print(status, X.tolist(), Y.tolist())
""",
        *FORK,
    )
    assert output(done) == [f"{[True] * 12} [7.0, 7.0]", "0 [2.0, 2.0] [0.0, 0.0]"]
    assert done.stderr == ""


def test_fork_inside_a_with_block_writes_nothing_back_in_the_child(run):
    done = run(
        """
import os, sys
X = np.zeros(2)
with stf.context() as ctx:
    add(ctx.logical_data(X))
    ctx.synchronize()
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
print("child" if pid == 0 else "parent", X.tolist() if pid else "", flush=True)
""",
        *FORK,
    )
    assert output(done) == ["child ", "parent [1.0, 1.0]"]
    assert done.stderr == ""


def test_resources_work_in_the_child_of_a_fork(run):
    done = run(
        """
import os, sys
resources = stf.Resources()
X = np.zeros(2)
with stf.context(resources=resources) as ctx:
    add(ctx.logical_data(X))
pid = os.fork()
with stf.context(resources=resources) as ctx:
    add(ctx.logical_data(X))
if pid:
    assert os.waitpid(pid, 0)[1] == 0
print(X.tolist(), flush=True)
"""
    )
    assert output(done) == ["[2.0, 2.0]", "[2.0, 2.0]"]


def test_a_fork_waits_for_the_kernel_that_another_thread_compiles(run):
    """Else the compiler's lock would stay locked in the child."""
    pytest.importorskip("numba")
    done = run(
        """
import os, threading, time
locked, forking = threading.Event(), threading.Event()
def kernel(body):
    with stf.context() as ctx:
        x = ctx.logical_data_zeros(8)
        ctx.parallel_for(x.shape, x.write())(body)
        print(x.numpy().sum(), flush=True)
def first(i, x):
    x[i] = 1.0
def second(i, x):
    x[i] = 2.0
kernel(first)
from numba.core.compiler_lock import global_compiler_lock
def compile_for_a_while():
    with global_compiler_lock:
        locked.set()
        forking.wait(60)
        time.sleep(0.2)
thread = threading.Thread(target=compile_for_a_while)
thread.start()
assert locked.wait(60)
os.register_at_fork(before=forking.set)
pid = os.fork()
if pid == 0:
    import faulthandler
    faulthandler.dump_traceback_later(20, exit=True)
    kernel(second)
    os._exit(0)
print(os.waitpid(pid, 0)[1])
thread.join()
""",
        *FORK,
        STF_CACHE_SIZE="0",
    )
    assert output(done) == ["8.0", "16.0", "0"] and done.stderr == ""


@pytest.mark.parametrize("graph", ["", "True"])
def test_blocking_runs_each_task_in_its_call(run, graph):
    done = run(
        """
import threading
ran = []
@stf.task
def note(x: stf.ReadWrite, what):
    ran.append(what)
@stf.task
def broken(x: stf.ReadWrite):
    raise KeyError("now")
with stf.context(GRAPH) as ctx:
    lX, lY = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.zeros(2))
    note(lX, 1); assert ran == [1]
    ctx.task(lX.rw())(lambda x: ran.append(2)); assert ran == [1, 2]
    ctx.host_launch(lX.read())(lambda x: ran.append(3)); assert ran == [1, 2, 3]
    ctx.submit_task(note, lX, 4); assert ran == [1, 2, 3, 4]
    with ctx.task(lX.rw()) as t:
        note(lY, 5)
    ctx.fill(lX, 3.0)
    try:
        broken(lY)
    except stf.TaskFailedError as error:
        print(type(error.__cause__).__name__)
    lY.accept()
    print(ran, lX.numpy().tolist())
    with ctx.graph_scope():
        note(lX, 6)
        assert ran == [1, 2, 3, 4, 5]
    assert ran == [1, 2, 3, 4, 5, 6]
""".replace("GRAPH", graph),
        STF_BLOCKING="1",
    )
    assert output(done) == ["KeyError", "[1, 2, 3, 4, 5] [3.0, 3.0]"]


def test_validate_names_who_changed_what_it_may_only_read(run):
    done = run(
        """
@stf.task
def cheat(x: stf.Read):
    x.setflags(write=True) if False else None
    import ctypes
    ctypes.memset(x.ctypes.data, 1, x.nbytes)
with stf.context() as ctx:
    lX = ctx.logical_data(np.zeros(4), name="X")
    add(lX)
    cheat(lX)
    try:
        ctx.synchronize()
    except stf.TaskFailedError as error:
        print(error)
    try:
        with ctx.task(lX.read(), name="block") as t:
            import ctypes
            ctypes.memset(t.get_arg(0), 2, 32)
    except stf.AccessError as error:
        print(error)
""",
        STF_VALIDATE="1",
    )
    late, block = output(done)
    assert "AccessError: task 'cheat' changed logical data 'X' (written by task 'add' at program.py:" in late
    assert "task 'block' changed logical data 'X'" in block and "open it with rw(), or work on a copy" in block


def test_validate_names_what_a_write_leaves_untouched(run):
    done = run(
        """
@stf.task
def half(x: stf.Write):
    x[:2] = 1
with stf.context() as ctx:
    for dtype in (np.float64, np.float32, np.int64, np.int8, np.complex64):
        lX = ctx.logical_data_empty(4, dtype, name="X")
        half(lX)
        try:
            ctx.synchronize()
            print("passed", np.dtype(dtype))
        except stf.TaskFailedError as error:
            print(str(error.__cause__))
        whole = ctx.logical_data_full(4, 5, dtype)
        assert whole.numpy().tolist() == [5] * 4
""",
        STF_VALIDATE="1",
    )
    lines = output(done)
    assert lines[0] == (
        "task 'half' opened logical data 'X' with write() and left 16 of 32 bytes untouched; write all of it, or "
        "open it with rw() (ReadWrite) if it adds to what was there"
    )
    assert "left 8 of 16 bytes" in lines[1] and "left 16 of 32 bytes" in lines[2]
    assert lines[3] == "passed int8"  # a byte may hold the pattern by right
    assert "left 16 of 32 bytes" in lines[4]


def test_validate_guards_registered_arrays_until_they_are_released(run):
    done = run(
        """
X, Y, Z = np.zeros(2), np.zeros(2), np.zeros(2)
with stf.context() as ctx:
    lX, lY, lZ = ctx.logical_data(X), ctx.logical_data(Y), ctx.logical_data(Z)
    add(lX)
    for array in (X, Y):
        try:
            array[0] = 5
        except ValueError as error:
            print(error)
    lX.release()
    ctx.synchronize()
    X[0] = 7
    del lY
    ctx.fence().synchronize()
    Y[0] = 8
Z[0] = 9
print(X.tolist(), Y.tolist(), Z.tolist())
""",
        STF_VALIDATE="1",
    )
    assert output(done) == ["assignment destination is read-only"] * 2 + ["[7.0, 1.0] [8.0, 0.0] [9.0, 0.0]"]


def test_validate_accepts_a_correct_program(run):
    done = run(
        """
X = np.arange(12.0).reshape(3, 4)
with stf.context() as ctx:
    lX, lS = ctx.logical_data(X, name="X"), ctx.logical_data_zeros(())
    token = ctx.token()
    tiles = lX.tiles((2, 2))
    for tile in tiles.ravel():
        add(tile, 1)
    del tile, tiles
    with ctx.task(lX.read(), lS.accumulate(stf.reducer.sum), token.rw()) as t:
        x, s = t.arrays()
        s += x.sum()
    with ctx.freeze(lX) as frozen:
        assert frozen.get().sum() == 78
    ctx.copy(lX, lX.empty_like())
    print(float(lS), ctx.wait(lX).sum())
print(X.sum())
""",
        STF_VALIDATE="1",
    )
    assert output(done) == ["78.0 78.0", "78.0"]


def test_memory_limit_of_the_environment(run_python):
    done = run_python(
        ADD
        + """
with stf.context() as ctx:
    data = [ctx.logical_data(np.full(1000, float(i))) for i in range(6)]
    for d in data * 2:
        add(d)
    print([float(d.numpy()[0]) for d in data], ctx.statistics().evictions["device(0)"] > 0)
""",
        STF_DEVICES="cpu:1",
        STF_MEMORY_LIMIT="16kB",
    )
    assert output(done) == ["[2.0, 3.0, 4.0, 5.0, 6.0, 7.0] True"]


def test_malformed_setting_is_named(run_python):
    done = run_python("print('imported')\nstf.context()", STF_MAX_PENDING="none")
    assert done.returncode == 1 and done.stdout == "imported\n"
    assert done.stderr.splitlines()[-1] == (
        "ValueError: STF_MAX_PENDING='none' is malformed: set it to a positive integer, such as 8, or unset it"
    )


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("STF_BLOCKING", "maybe", "is malformed: set it to 1 or 0, or unset it"),
        ("STF_PURE", "perhaps", "is malformed: set it to 1 or 0, or unset it"),
        (
            "STF_MEMORY_LIMIT",
            "lots",
            "is malformed: set it to a number of bytes, such as 500000000, 512MiB or 2GiB, or",
        ),
        ("CUDASTF_DOT_TIMING", "no way", "is malformed: set it to 1 or 0, or unset it"),
    ],
)
def test_the_page_of_settings_says_what_is_malformed(run_python, variable, value, allowed):
    done = run_python("import runpy; runpy.run_module('stf', run_name='__main__')", **{variable: value})
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"python -m stf: error: {variable}={value!r} {allowed}")


def test_the_page_of_settings_says_which_devices_there_are(run_python):
    show = "import runpy; runpy.run_module('stf', run_name='__main__')"
    done = run_python(show, STF_DEVICES="gpu")
    assert done.returncode == 2 and done.stderr == (
        "python -m stf: error: STF_DEVICES is 'cpu', 'cpu:N', 'cuda', 'cuda:0,2' or a list of numbers, got 'gpu'\n"
    )
    for known in ("cpu:2", "cuda"):  # that CUDA is not there is what the page is asked about
        done = run_python(show, STF_DEVICES=known)
        assert done.returncode == 0 and done.stderr == "" and "STF_DEVICES  " in done.stdout


@pytest.mark.parametrize("variable", ["STF_DOT_FILE", "CUDASTF_DOT_FILE"])
def test_dot_file_is_written_at_finalize(run, tmp_path, variable):
    path = tmp_path / "graph.dot"
    done = run(
        """
with stf.context() as ctx:
    lX = ctx.logical_data(np.zeros(2), name="X")
    add.named("first")(lX)
    add.named("second")(lX)
""",
        **{variable: str(path)},
    )
    output(done)
    text = path.read_text()
    assert text.startswith("digraph") and "first" in text and "second" in text and text.count("->") == 1


def test_seed_variables_of_the_picture(run, tmp_path):
    path, stats = tmp_path / "graph.dot", tmp_path / "stats.txt"
    program = """
with stf.context() as ctx:
    lX = ctx.logical_data(np.zeros(2), name="Xdata")
    lX.set_symbol("Xdata")
    with ctx.dot_section("inner"):
        add.named("first")(lX)
        add.named("second")(lX)
"""
    output(run(program, CUDASTF_DOT_FILE=str(path)))
    plain = path.read_text()
    assert "Xdata" in plain and "inner" in plain and "first" in plain
    output(run(program, CUDASTF_DOT_FILE=str(path), CUDASTF_DOT_REMOVE_DATA_DEPS="1"))
    assert "Xdata" not in path.read_text()
    output(run(program, CUDASTF_DOT_FILE=str(path), CUDASTF_DOT_MAX_DEPTH="0"))
    assert "first" not in path.read_text() and "inner" in path.read_text()
    output(run(program, CUDASTF_DOT_FILE=str(path), CUDASTF_DOT_COLOR_BY_DEVICE="1"))
    assert "color" in path.read_text()
    output(run(program, CUDASTF_DOT_FILE=str(path), CUDASTF_DOT_TIMING="1", CUDASTF_DOT_STATS_FILE=str(stats)))
    assert path.read_text() != plain and stats.read_text()
    output(run(program, CUDASTF_DOT_FILE=str(path), CUDASTF_DOT_IGNORE_PREREQS="0"))
    assert "first" in path.read_text()


def test_the_page_of_settings_may_be_cut_short():
    """As by ``python -m stf | head``."""
    where = str(Path(stf.__file__).parents[1])
    command = [sys.executable, "-m", "stf"]
    page = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": where}
    )
    page.stdout.close()
    told = page.stderr.read()
    page.stderr.close()
    assert (page.wait(60), told) == (0, b"")


def test_what_is_left_at_exit_is_silent(run):
    done = run(
        """
import sys
ctx = stf.context()
lX = ctx.logical_data(np.zeros(2))
access, kept = lX.read(), [ctx]
def use():
    with ctx.task(access):
        pass
    task = ctx.task(lX.rw())
    with task:
        pass
    try:
        with task:
            pass
    except stf.TaskStateError as error:
        print("told")
use()
kept.append(kept)
sys.kept = kept
ctx.finalize()
"""
    )
    assert output(done) == ["told"] and done.stderr == ""


def test_other_contexts_are_no_reason_to_look_who_waits_for_whom(run):
    """Only another open task is, or a queued body that has not run."""
    done = run(
        """
from stf._engine import host_waits
looks = []
def look(*args, enter_noted=host_waits.enter_noted):
    looks.append(args)
    return enter_noted(*args)
host_waits.enter_noted = look

def work(ctx):
    lX = ctx.logical_data(np.zeros(3))
    with ctx.task(lX.rw()) as t:
        t.numpy()[0][...] += 1
    add(lX)
    ctx.synchronize()
    assert ctx.wait(lX).tolist() == [2, 2, 2]

ended, other, ctx = stf.context(), stf.context(), stf.context()
work(ended)
ended.finalize()
work(other)
work(ctx)
print(len(looks))
with ctx.task(ctx.token().rw()):
    with other.task(other.token().rw()):
        print(len(looks) > 0)
"""
    )
    assert output(done) == ["0", "True"]
