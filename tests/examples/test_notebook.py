"""stf in a notebook: cells and lines as people know them, errors that end in a cell, objects that show themselves."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

DOCS = Path(__file__).parents[2] / "docs"
CELLS = {
    "functions": """\
import numpy as np
import stf
X = np.ones(4)
@stf.task
def add(a, x: stf.ReadWrite):
    x += a
@stf.task
def bad(x: stf.ReadWrite):
    raise ValueError("boom")""",
    "context": "ctx = stf.context(devices='cpu', observe=True)\nx = ctx.logical_data(X)\nadd(1.0, x)",
    "again": "ctx = stf.context(devices='cpu', observe=True)\nx = ctx.logical_data(X)\nadd(1.0, x)\nx.numpy()",
    "mistake": "add(2.0)",
    "failure": "bad(x)\nx.numpy()",
    "history": "print(x.history())",
    "shown context": "ctx",
    "shown data": "x",
    "shown statistics": "ctx.statistics()",
    "shown graph": "g = ctx.task_graph()\nwith g:\n    add(1.0, ctx.logical_data(np.zeros(3)))\ng",
    "handle": "x.accept()\nadd(1.0, x)",
    "end": "ctx.finalize()\nX",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What each cell printed, showed and raised."""
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    folder = tmp_path_factory.mktemp("notebook")
    nbclient.NotebookClient(
        notebook, allow_errors=True, kernel_name="python3", timeout=100, resources={"metadata": {"path": folder}}
    ).execute()
    return {name: cell.outputs for name, cell in zip(CELLS, notebook.cells, strict=True)}


def text_of_error(outputs):
    (error,) = [output for output in outputs if output.output_type == "error"]
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))


def shown(outputs, kind="text/plain"):
    return [output.data[kind] for output in outputs if output.output_type == "execute_result" and kind in output.data]


def test_a_cell_can_run_again(outputs):
    """The context before is finalized, with its results, and the array can be registered in the new one."""
    assert shown(outputs["again"]) == ["array([3., 3., 3., 3.])"]
    assert shown(outputs["end"]) == ["array([4., 4., 4., 4.])"]


def test_errors_end_in_the_cell(outputs):
    mistake, failure = text_of_error(outputs["mistake"]), text_of_error(outputs["failure"])
    assert "----> 1 add(2.0)" in mistake and "missing a required argument: 'x'" in mistake
    assert '----> 9     raise ValueError("boom")' in failure and "----> 2 x.numpy()" in failure
    assert "site-packages" not in mistake + failure and "stf/" not in mistake + failure


def test_lines_are_those_of_cells(outputs):
    assert "task 'bad' (In[5]:1) failed with ValueError: boom" in text_of_error(outputs["failure"])
    (history,) = [output.text for output in outputs["history"]]
    assert "written by task 'add' at In[3]:3" in history


@pytest.mark.parametrize("name", ["context", "data", "statistics", "graph"])
def test_objects_show_themselves(outputs, name):
    (html,) = shown(outputs[f"shown {name}"], "text/html")
    assert "<table" in html


def test_a_handle_shows_how_its_task_is(outputs):
    assert re.fullmatch(r"<task 'add' at device\(0\), (submitted|running|done)>", shown(outputs["handle"])[0])


def test_the_notebook_of_the_tutorial_runs(tmp_path):
    """It is that of the page, and prints what the page says."""
    script = runpy.run_path(str(DOCS / "notebook.py"))
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    stored = (DOCS / "tutorial.ipynb").read_text(encoding="utf-8")
    assert stored == script["notebook"](text), "python docs/notebook.py makes it anew"
    notebook = nbformat.reads(stored, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(
        notebook, kernel_name="python3", timeout=100, resources={"metadata": {"path": tmp_path}}
    ).execute()
    printed = ["".join(o.text for o in c.outputs if "text" in o) for c in notebook.cells if c.cell_type == "code"]
    assert printed[0] == "[5. 5. 5. 5. 5.]\n" and len(printed) == 8
    assert "written by task 'axpy' at In[3]:4" in printed[2]
    assert "task 'invert' (In[5]:11) failed with ZeroDivisionError: a zero in x" in printed[4]
    assert "116665.17" in printed[6] and "why" not in printed[7] and "reads block 0" in printed[7]
