"""What is shown of an error that nobody catches ends at the user's line; ``STF_FULL_TRACEBACK=1`` shows all."""

from __future__ import annotations

import pytest

PROGRAM = """
@stf.task
def bad(x: stf.ReadWrite):
    raise ValueError("boom")

@stf.task
def returns(x: stf.ReadWrite):
    return np.zeros(7)

def main():
    with stf.context(devices="cpu:2") as ctx:
        x = ctx.logical_data(np.zeros(3))
        bad(x)
        {last}

main()
"""


@pytest.mark.parametrize("last", ["ctx.synchronize()", "x.numpy()", "bad(x, 3)", "ctx.logical_data([1, 2])"])
def test_frames_of_ours_are_left_out(run_python, last):
    done = run_python(PROGRAM.format(last=last))
    shown = done.stderr
    assert done.returncode == 1 and "Traceback" in shown and last in shown
    files = [line.split('"')[1] for line in shown.splitlines() if line.startswith('  File "')]
    assert files and all(file.endswith("program.py") for file in files)
    assert ("raise ValueError" in shown) == ("numpy" in last or "synchronize" in last)


@pytest.mark.parametrize("last", ["returns(ctx.logical_data(np.ones(3))), ctx.synchronize()", "ctx.synchronize()"])
def test_what_stf_raises_in_a_worker_shows_no_frames_of_ours(run_python, last):
    program = PROGRAM.replace("bad(x)\n", "returns(x)\n")
    shown = run_python(program.format(last=last)).stderr
    files = [line.split('"')[1] for line in shown.splitlines() if 'File "' in line]
    assert files and all(file.endswith("program.py") for file in files)
    assert "result 0 of task 'returns' has shape (7,)" in shown and "the direct cause" in shown


def test_all_frames_are_shown_if_asked_for(run_python):
    done = run_python(PROGRAM.format(last="ctx.synchronize()"), STF_FULL_TRACEBACK="1")
    assert "stf/data/waiting.py" in done.stderr.replace("\\", "/") and done.returncode == 1


def test_who_catches_an_error_has_all_frames(run_python):
    done = run_python(
        """
import traceback
try:
    stf.context(devices="cpu:0")
except ValueError as error:
    print(len(traceback.extract_tb(error.__traceback__)))
try:
    stf.context(devices="cpu:0")
except* ValueError:
    pass
"""
    )
    assert int(done.stdout) > 1
