"""Who may import whom, and the shape of the modules.

The package is made of rooms. A room may import the rooms above it in `ROOMS`, and the modules of a room import each
other in no circle. The tests read the sources, so they hold for imports inside functions, for those that are made for
types alone, and for the C imports of the .pxd and .pyx too.
"""

from __future__ import annotations

import ast
import dis
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import stf

ROOT = Path(stf.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
SOURCES = sorted([*MODULES, *ROOT.rglob("*.pyx"), *ROOT.rglob("*.pxd")])
MAX_LINES = 800  # of a module that holds one noun, which a split would cut in two

ROOMS = {  # from the ground up
    "ground": "errors, settings, locks, the compiled and the uncompiled form, checks of arguments",
    "observe": "is told, never asks",
    "_port": "the words that engine, recordings and backends share",
    "_drivers": "talks to one machine, in flat verbs on integers",
    "_engine": "orders tasks and keeps data coherent",
    "_backends": "turns slots into streams or nodes",
    "devices": "which devices there are, and the driver for them",
    "interop": "arrays, streams and kernels of other libraries",
    "_recording": "keeps tasks instead of running them, and launches them",
    "values": "what is known later: parameters, expressions, conditions, containers",
    "places": "where tasks run and where data are",
    "placement": "chooses where tasks run that name no place",
    "tasks": "a function or a block, and its data",
    "kernels": "a kernel as a task",
    "data": "logical data",
    "graphs": "what users record",
    "contexts": "the face, which wires a backend to a driver",
    "planning": "what a program would do on devices that are not here",
    "testing": "what someone who writes a driver runs",
    "stf": "the public names",
    "compat": "other libraries' names over the public ones",
}
ORDER = list(ROOMS)
ENGINE = ROOT / "_engine"
GROUND = {"errors", "config", "_support"}

EXTENDS = {  # modules that add to a library, which is loaded with them
    "kernels/compile/scalar_numpy.py": {"numba"},
}
CIRCLES: list[set[str]] = []  # of modules in a room, if one cannot be avoided
KNOW_OPCODES = {"_support/code_facts.py", "_support/code_writing.py"}
# Fields of the engine: the rooms beside `_engine` that read each, and the modules that set it.
READ_BY = {
    "port": "_drivers _recording contexts data interop kernels tasks",
    "root": "_recording data graphs interop kernels placement places tasks",
    "coherency": "_recording contexts data placement tasks",
    "gate": "_recording contexts data graphs tasks",
    "dropped": "_recording data graphs",
    "deferred": "_recording graphs",
    "has_dropped": "_recording",
    "dropped_tiles": "graphs",
    "failures": "_recording data tasks",
    "last_open": "_recording tasks",
    "closed": "_recording contexts data graphs tasks",
    "ending": "_recording contexts graphs tasks",
    "arrays": "contexts tasks",
    "observer": "_recording contexts placement tasks",
    "validate": "_recording contexts data tasks",
    "watches": "_recording contexts kernels tasks",
    "wants_finite": "contexts graphs tasks",
    "adopts": "contexts tasks",
    "has_results": "tasks",
    "blocking": "_recording contexts graphs tasks",
    "scope": "_recording _support contexts data graphs kernels observe tasks values",
    "root_scope": "_recording graphs",
    "launching": "_recording graphs",
    "gathering": "contexts data graphs tasks",
    "next_uses": "contexts planning",
    "window": "contexts data graphs tasks",
    "make_graph_port": "contexts graphs",
    "ask_producer": "_recording contexts",
    "places": "_recording _support contexts data graphs interop kernels placement places tasks",
    "kinds": "contexts",
    "next_data": "_recording graphs tasks",
    "next_task": "contexts",
    "withdrawn": "contexts",
    "queued": "_recording tasks",
    "calling": "_recording",
    "ran": "_recording tasks",
    "cancelled": "_recording data graphs tasks",
    "context": "contexts data graphs kernels places tasks",
    "keep_previous": "_recording contexts",
}
SET_BY = {
    "port": "_recording.recordings",
    "closed": "contexts.ending",
    "ending": "contexts.ending",
    "arrays": "contexts.wiring",
    "validate": "contexts.wiring",
    "watches": "contexts.context contexts.wiring tasks.capsules",
    "wants_finite": "contexts.context",
    "adopts": "contexts.wiring",
    "has_results": "tasks.functions",
    "blocking": "contexts.wiring",
    "scope": "_recording.recordings",
    "launching": "_recording.launches",
    "gathering": "contexts.ending contexts.wiring graphs.graph_scope",
    "next_uses": "contexts.context contexts.planned",
    "window": "tasks.placing",
    "make_graph_port": "contexts.wiring",
    "ask_producer": "contexts.wiring",
    "queued": "_recording.graph_calls _recording.playback tasks.recapture",
    "ran": "_recording.graph_calls tasks.recapture",
    "cancelled": "data.waiting",
    "context": "contexts.wiring",
    "keep_previous": "contexts.wiring",
}
CIMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\S+)[ \t]+c?import[ \t]+(.+)|c?import[ \t]+(.+))", re.MULTILINE)


class Import(NamedTuple):
    """A module that is imported, and whether that happens while its importer is loaded."""

    module: str
    at_load: bool


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    parts = ("stf", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path) for path in SOURCES}


def imports(path: Path) -> set[Import]:
    if path.suffix == ".py":
        return set(python_imports(path))
    return {Import(module, True) for module in c_imports(path)}


def python_imports(path: Path) -> Iterator[Import]:
    def visit(node: ast.AST, at_load: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(path, "." * node.level + (node.module or ""))
            yield from (Import(resolve(base, alias.name), at_load) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (found for child in node.body for found in visit(child, False))
            yield from (found for child in node.orelse for found in visit(child, at_load))
        else:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, at_load and not inside)

    return visit(ast.parse(path.read_text()), True)


def c_imports(path: Path) -> Iterator[str]:
    text = re.sub(r"\\\n", " ", re.sub(r"#.*", "", path.read_text()))
    text = re.sub(r"\(([^()]*)\)", lambda m: m[1].replace("\n", " "), text)
    for base, names, plain in CIMPORT.findall(text):
        for name in (names or plain).split(","):
            word = name.split()[0] if name.split() else ""
            if word:
                yield resolve(absolute(path, base), word) if base else word


def absolute(path: Path, name: str) -> str:
    """Resolve the leading dots of `name` as `path` would."""
    level = len(name) - len(name.lstrip("."))
    if level == 0:
        return name
    package = ["stf", *path.relative_to(ROOT).parent.parts]
    return ".".join([*package[: len(package) - level + 1], *filter(None, [name.lstrip(".")])])


def resolve(base: str, name: str) -> str:
    """Return the module that `from base import name` reads."""
    return f"{base}.{name}" if f"{base}.{name}" in NAMES else base


def own(path: Path) -> set[str]:
    """Return the modules of stf that `path` imports."""
    return {i.module for i in imports(path) if i.module == "stf" or i.module.startswith("stf.")}


def in_package(package: str) -> list[Path]:
    return [path for path in SOURCES if relative(path).startswith(f"{package}/")]


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def room_of(module: str) -> str:
    """Return the room of a module of stf, by its full name."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] == "__main__":
        return "stf"
    return "ground" if parts[1] in GROUND else parts[1].replace("_testing", "testing")


def arrows() -> set[tuple[str, str]]:
    """Return (importer, imported) for all modules of stf, without ``stf.``."""
    found = {(module_name(path), module) for path in SOURCES for module in own(path)}
    return {(one.removeprefix("stf."), other.removeprefix("stf.")) for one, other in found if one != other}


def circles(edges: set[tuple[str, str]]) -> list[set[str]]:
    """Return the largest sets of modules that reach each other."""
    sorter: dict[str, set[str]] = {}
    for one, other in edges:
        sorter.setdefault(one, set()).add(other)

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        more = [start]
        while more:
            new = sorter.get(more.pop(), set()) - found
            found |= new
            more += new
        return found

    reach = {module: reached(module) for module in sorter}
    inside = {frozenset(other for other in reach[one] if one in reach.get(other, ())) for one in reach}
    return [set(group) for group in inside if group]


def test_every_module_is_in_a_room() -> None:
    assert {room_of(name) for name in NAMES} == set(ROOMS)


def test_no_import_goes_up() -> None:
    def rank(module: str) -> int:
        return ORDER.index(room_of("stf" if module == "stf" else f"stf.{module}"))

    assert {(one, other) for one, other in arrows() if rank(other) > rank(one)} == set()


def test_modules_of_a_room_import_each_other_in_no_circle() -> None:
    found = circles(arrows())
    assert sorted(map(sorted, found)) == sorted(map(sorted, CIRCLES))


def test_the_fields_of_the_engine_are_read_and_set_where_the_lists_say() -> None:
    """They are the state of `_engine`; a room that needs one more asks for a verb."""
    declared = re.findall(
        r"(?m)^    cdef (?:public |readonly )?[\w ]+? (\w+)(?:  #.*)?$", (ENGINE / "state.pxd").read_text()
    )
    assert len(declared) > 40
    reads: dict[str, set[str]] = {}
    writes: dict[str, set[str]] = {}
    for path in [p for p in SOURCES if p.suffix != ".pxd" and p.parent != ENGINE]:
        module, text = module_name(path).removeprefix("stf."), path.read_text()
        for name in set(re.findall(r"\bengine\.(\w+)", text)) & set(declared):
            reads.setdefault(name, set()).add(module.partition(".")[0])
            if re.search(rf"\bengine\.{name}(, [\w.]+)* [-+]?= |, engine\.{name} = ", text):
                writes.setdefault(name, set()).add(module)
    assert reads == {name: set(rooms.split()) for name, rooms in READ_BY.items()}
    assert writes == {name: set(modules.split()) for name, modules in SET_BY.items()}


def test_circles_are_found() -> None:
    edges = {("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("f", "f2"), ("f2", "f")}
    assert sorted(map(sorted, circles(edges))) == [["a", "b", "c"], ["f", "f2"]]


def test_backends_see_the_port_and_the_driver_base() -> None:
    for path in in_package("_backends"):
        others = {module for module in own(path) if not is_in(module, "stf._backends")}
        assert {m for m in others if room_of(m) not in ("ground", "_port")} <= {"stf._drivers.base"}, relative(path)


def test_only_the_composition_root_names_backends_and_drivers() -> None:
    root = {"contexts/wiring.py", "contexts/wiring.pxd", "devices/make.py", "testing.py"}
    abstract = {"stf._drivers", "stf._drivers.base", "stf._backends"}
    for path in SOURCES:
        if relative(path) in root or relative(path).startswith(("_backends/", "_drivers/")):
            continue
        concrete = {m for m in own(path) if is_in(m, "stf._drivers") or is_in(m, "stf._backends")}
        assert concrete <= abstract, relative(path)


def test_foreign_libraries_are_imported_inside_functions() -> None:
    free = {*sys.stdlib_module_names, "stf", "numpy", "cython"}
    for path in MODULES:
        at_load = {i.module.partition(".")[0] for i in imports(path) if i.at_load}
        assert at_load <= free | EXTENDS.get(relative(path), set()), relative(path)


def test_one_room_knows_the_opcodes_of_python() -> None:
    """So a new version of Python is a change of two modules."""
    opcodes = re.compile("|".join(rf"\b{name}\b" for name in dis.opmap if "_" in name))
    for path in [path for path in SOURCES if relative(path) not in KNOW_OPCODES]:
        assert not {"dis", "opcode"} & {i.module for i in imports(path)}, relative(path)
        assert not opcodes.findall(path.read_text()), relative(path)


def test_only_placing_and_the_engine_say_where_a_task_runs() -> None:
    """So a place can be chosen in one spot, and nothing moves a task whose arrays were made."""
    own = {"Task", "TaskCore"}  # other classes have a field of this name, too: they set their own
    for path in [p for p in MODULES if p.parent != ENGINE and relative(p) != "tasks/placing.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            fields = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr == "where"]
            if isinstance(node, ast.ClassDef):
                found = [f for f in fields if isinstance(f.ctx, ast.Store) and node.name in own]
            else:
                found = [
                    f for f in fields if isinstance(f.ctx, ast.Store) and ast.unparse(f.value) not in ("self", "copy")
                ]
            assert not found, f"{relative(path)}:{found[0].lineno}"


def test_extensions_of_a_library_are_imported_inside_functions() -> None:
    extensions = {module_name(ROOT / name) for name in EXTENDS}
    assert extensions <= NAMES
    for path in MODULES:
        assert not extensions & {i.module for i in imports(path) if i.at_load}, relative(path)


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_module_has_a_docstring_and_holds_one_noun(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "no module docstring"
    assert text.count("\n") < MAX_LINES


def test_pyx_modules_hold_one_noun() -> None:
    for path in ROOT.rglob("*.pyx"):
        assert path.read_text().count("\n") < MAX_LINES, relative(path)


def test_public_names_are_sorted_and_resolve() -> None:
    assert list(stf.__all__) == sorted(set(stf.__all__))
    missing = [name for name in stf.__all__ if not hasattr(stf, name)]
    assert missing == []


def test_the_reader_of_imports_sees_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    monkeypatch.setitem(globals(), "NAMES", {"stf.errors", "stf._port.events", "stf._port.port"})
    (tmp_path / "_port").mkdir()
    source = tmp_path / "_port" / "a.py"
    source.write_text(
        "from typing import TYPE_CHECKING\nfrom stf import errors\nfrom . import events\nfrom ..data.logical_data import x\n"
        "if TYPE_CHECKING:\n    import cupy\n"
        "try:\n    import torch\nexcept ImportError:\n    import os.path\n"
        "def f():\n    from .port import P\n    import numba\n"
    )
    assert imports(source) == {
        Import("typing", True),
        Import("stf.errors", True),
        Import("stf._port.events", True),
        Import("stf.data.logical_data", True),
        Import("cupy", False),
        Import("torch", True),
        Import("os.path", True),
        Import("stf._port.port", False),
        Import("numba", False),
    }
    header = tmp_path / "_port" / "a.pxd"
    header.write_text(
        "from libc.stdint cimport int64_t  # from stf.data.logical_data cimport X\nfrom . cimport port\n"
        "from stf._port.events cimport (\n    EventSet,\n    Data,\n)\ncimport stf.errors as errors\n"
    )
    assert {i.module for i in imports(header)} == {
        "libc.stdint",
        "stf._port.port",
        "stf._port.events",
        "stf.errors",
    }


def test_directives_of_a_class_stand_in_both_of_its_files() -> None:
    """A module that cimports a class must know that it is untracked, or it frees it as if it were tracked."""
    for path in [p for p in sorted(ROOT.rglob("*.pxd")) if not p.with_suffix(".pyx").exists()]:
        directives = re.compile(r"((?:@cython\.\w+(?:\(\d+\))?\n)+)c?(?:def )?class (\w+)")
        for_others = {name: "no_gc" in text for text, name in directives.findall(path.read_text())}
        for_itself = {name: "no_gc" in text for text, name in directives.findall(path.with_suffix(".py").read_text())}
        untracked = {name for name, flag in for_itself.items() if flag}
        assert untracked == {name for name, flag in for_others.items() if flag}, path


def test_the_table_of_tests_names_each_room_and_tests_that_exist() -> None:
    page = (ROOT.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in page.split("## Which tests guard which room")[1].splitlines()[4:]]
    rooms = {name for left, _ in rows for name in re.findall(r"`(\w+)`", left)}
    assert rooms == {*ROOMS, *GROUND} - {"ground", "stf"}
    for _, tests in rows:
        folder = "tests"
        for name in re.findall(r"`([\w/*.]+)`", tests):
            path = name if not name.startswith("test_") else f"{folder}/{name}"
            found = list((ROOT.parents[1] / "tests").glob(path)) or list((ROOT.parents[1] / "tests").glob(f"{path}.py"))
            assert found, name
            folder = path.rpartition("/")[0] or path


def test_the_table_of_faults_is_the_list_that_is_planted() -> None:
    page = (ROOT.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    planted = runpy.run_path(str(ROOT.parents[1] / "tests" / "faults" / "run.py"))
    assert "\n".join(planted["table"]()) in page
    for fault in planted["FAULTS"]:  # a renamed line is no fault
        assert (ROOT / fault.module).read_text(encoding="utf-8").count(fault.right) == 1, fault.name
        assert (ROOT.parents[1] / fault.tests).is_file(), fault.name


BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.With, ast.Assert, ast.comprehension)


def complexity(function: ast.FunctionDef) -> int:
    """One more than its branches; each further operand of ``and`` and ``or`` is one, and each filter."""
    inside = [node for statement in function.body for node in ast.walk(statement)]
    operands = sum(len(node.values) - 1 for node in inside if isinstance(node, ast.BoolOp))
    filters = sum(len(node.ifs) for node in inside if isinstance(node, ast.comprehension))
    return 1 + sum(isinstance(node, BRANCHES) for node in inside) + operands + filters


def test_no_function_has_a_complexity_above_25() -> None:
    functions = [
        (complexity(node), path.name, node.name)
        for path in SOURCES
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    assert len(functions) > 3000 and [found for found in functions if found[0] > 25] == []
    program = "def f(x):\n    return [y for y in x if y and y > 1] if x else None"
    assert complexity(ast.parse(program).body[0]) == 5
