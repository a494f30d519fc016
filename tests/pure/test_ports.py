"""Whatever is asked of a port is declared on the class that the asking code has, and nobody above knows a driver.

The tests read the sources, so they hold for both forms. They know the class of an expression by its annotation, by what
was assigned to it, or by its name: ``engine.port`` and ``engine.root`` are a `Port`.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import stf

ROOT = Path(stf.__file__).parent
CLASSES = {  # where each is, and what it is based on
    "Port": ("_port/port", None),
    "RecordingPort": ("_port/recording_port", "Port"),
    "Captures": ("_port/captures", None),
    "Callers": ("_port/callers", None),
    "Readback": ("_port/readback", None),
    "LanePort": ("_backends/lanes", "Port"),
    "StreamBackend": ("_backends/stream", "LanePort"),
    "TimedBackend": ("_backends/timed", "StreamBackend"),
    "GraphBackend": ("_backends/graph", "RecordingPort"),
    "StreamCaptures": ("_backends/captures", "Captures"),
    "StreamCallers": ("_backends/callers", "Callers"),
    "StreamReadback": ("_backends/readback", "Readback"),
    "Kernels": ("_backends/kernels", None),
    "FunctionsAt": ("_backends/kernels", None),
}
DRIVERS = {"Driver": "_drivers/base", "Functions": "_drivers/roles", "Graphs": "_drivers/roles"}
ROLES = {"captures": "Captures", "callers": "Callers", "readback": "Readback", "kernels": "Kernels"}
CALLERS = [path for path in sorted(ROOT.rglob("*.py")) if not path.is_relative_to(ROOT / "_backends")]
IN_RECORDINGS = {"graphs/graph_scope.py", "contexts/observing.py"}  # their ``scope.port`` is that of a recording


class Asked(NamedTuple):
    """What some code asks of a port, or of a role: the class that it has, and the name."""

    where: str
    owner: str
    name: str


def declared(name: str) -> set[str]:
    """Return the verbs and fields of a class and its bases."""
    file, base = CLASSES[name]
    body = class_in(ROOT / f"{file}.py", name).body
    found = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    header = (ROOT / file).with_suffix(".pxd")
    if header.exists():
        block = re.search(rf"(?m)^cdef class {name}\b.*\n((?:    .*\n|\n)*)", header.read_text())
        assert block, name
        found |= set(re.findall(r"(?m)^    cdef (?:public |readonly )?[\w ]+? (\w+)(?:  #.*)?$", block[1]))
    return found | (declared(base) if base else set())


def class_in(path: Path, name: str) -> ast.ClassDef:
    nodes = ast.parse(path.read_text()).body
    return next(node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name)


class Reader:
    """Finds what the code of one module asks of ports."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.found: list[Asked] = []

    def class_of(self, node: ast.expr, known: dict[str, str]) -> str | None:
        """Return the class of an expression, if it is a port or a role."""
        if isinstance(node, ast.Name):
            return known.get(node.id, "Port" if node.id == "port" else None)
        if isinstance(node, ast.Attribute):
            return self.class_of_attribute(node, known)
        if isinstance(node, ast.IfExp):
            return self.class_of(node.body, known)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "cast":
                return next((name for name in CLASSES if ast.unparse(node.args[0]).strip("\"'") == name), None)
            if node.func.attr == "at" and self.class_of(node.func.value, known) == "Kernels":
                return "FunctionsAt"
        return None

    def class_of_attribute(self, node: ast.Attribute, known: dict[str, str]) -> str | None:
        owner = self.class_of(node.value, known)
        if owner is not None:
            return ROLES.get(node.attr)
        if node.attr == "port":
            return "RecordingPort" if self.module in IN_RECORDINGS and ".scope" in ast.unparse(node.value) else "Port"
        if node.attr == "_port" and self.module == "observe/devices.py":
            return "TimedBackend"
        base = ast.unparse(node.value)
        of_engine = base.endswith("engine") or (base == "self" and self.module.startswith("_engine/"))
        return "Port" if node.attr == "root" and of_engine else None

    def note(self, target: ast.expr, value: ast.expr, known: dict[str, str]) -> None:
        """Remember of which class a name is that something is assigned to."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, other in zip(target.elts, value.elts, strict=True):
                self.note(one, other, known)
        elif isinstance(target, ast.Name) and (kind := self.class_of(value, known)) is not None:
            known[target.id] = kind

    def read(self, node: ast.AST, known: dict[str, str]) -> None:
        """Read a node and what is in it, in the order of the source."""
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            known = dict(known)
            for argument in (*node.args.args, *node.args.kwonlyargs):
                annotation = ast.unparse(argument.annotation).strip("\"'") if argument.annotation else ""
                known.pop(argument.arg, None)
                if annotation in CLASSES:
                    known[argument.arg] = annotation
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            annotation = ast.unparse(node.annotation).strip("\"'")
            if annotation in CLASSES:
                known[node.target.id] = annotation
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self.note(target, node.value, known)
        elif isinstance(node, ast.Attribute):
            owner = self.class_of(node.value, known)
            if owner is not None:
                self.found.append(Asked(f"{self.module}:{node.lineno}", owner, node.attr))
        for child in ast.iter_child_nodes(node):
            self.read(child, known)


def asked_in(module: str, text: str) -> list[Asked]:
    reader = Reader(module)
    reader.read(ast.parse(text), {})
    return reader.found


@functools.cache
def everything_asked() -> list[Asked]:
    return [asked for path in CALLERS for asked in asked_in(path.relative_to(ROOT).as_posix(), path.read_text())]


def test_what_is_asked_of_ports_is_declared() -> None:
    found = everything_asked()
    names = {name: declared(name) for name in CLASSES}
    assert [asked for asked in found if asked.name not in names[asked.owner]] == []
    owners = {asked.owner for asked in found}
    assert owners >= {"Port", "RecordingPort", *ROLES.values(), "FunctionsAt"}
    assert len({asked.name for asked in found if asked.owner == "Port"}) > 35, "the reader sees the calls"


def test_what_ports_declare_is_asked() -> None:
    """By somebody above, so nothing is declared for good measure."""
    asked = {(asked.owner, asked.name) for asked in everything_asked()}
    asked |= {("Port", name) for owner, name in asked if owner == "RecordingPort"}
    for owner in ("Port", "RecordingPort", *ROLES.values(), "FunctionsAt"):
        base = CLASSES[owner][1]
        left = declared(owner) - (declared(base) if base else set()) - {"__init__"}
        left -= {"show_printed"} if owner == "Kernels" else set()  # which the backend asks itself
        assert {name for name in left if (owner, name) not in asked} == set(), owner


def test_the_reader_knows_what_a_port_is() -> None:
    text = (
        "def f(engine, port, root, frame):\n"
        "    engine.port.a; engine.root.b; port.c; root.no; frame.port.captures.d\n"
        "    one: RecordingPort = engine.port\n    one.e\n"
        "    here, other = engine.root, frame.no\n    here.kernels.at(1).f\n    other.no\n"
        "    def g(here):\n        here.no\n        one.g\n"
        "    (engine.port if one else None).h\n    frame.engine.root.callers.i\n"
    )
    wanted = [
        ("Port", "a"),
        ("Port", "b"),
        ("Port", "c"),
        ("Captures", "d"),
        ("RecordingPort", "e"),
        ("FunctionsAt", "f"),
    ]
    wanted += [("RecordingPort", "g"), ("Port", "h"), ("Callers", "i")]
    steps = {*ROLES, "at"}
    assert [(a.owner, a.name) for a in asked_in("m.py", text) if a.name not in steps] == wanted


@pytest.mark.parametrize("name", [name for name, (file, base) in CLASSES.items() if base and "_backends" in file])
def test_backends_answer_what_they_declare(name: str) -> None:
    """A verb that only raises NotImplementedError is for those that have none of it; ports of recordings are such."""
    base = CLASSES[name][1]
    answered: set[str] = set()
    while base is not None and base not in ("Port", "RecordingPort") and base not in {*ROLES.values(), "FunctionsAt"}:
        answered |= {node.name for node in class_in(ROOT / f"{CLASSES[base][0]}.py", base).body if is_answer(node)}
        base = CLASSES[base][1]
    answered |= {node.name for node in class_in(ROOT / f"{CLASSES[name][0]}.py", name).body if is_answer(node)}
    assert base is not None
    left = {node.name for node in class_in(ROOT / f"{CLASSES[base][0]}.py", base).body if is_open(node)}
    if name == "LanePort":
        return  # its subclasses say what a lane is
    assert left - answered == set()


def is_answer(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and not is_open(node)


def is_open(node: ast.AST) -> bool:
    """Return whether it is a function that only says that it is not implemented."""
    return isinstance(node, ast.FunctionDef) and ast.unparse(node.body[-1]) == "raise NotImplementedError"


def test_what_is_asked_of_drivers_is_declared() -> None:
    """By the backends, which stand on `Driver`, and by the contexts, which open one."""
    asked: dict[str, set[str]] = {name: set() for name in DRIVERS}
    for path in [path for room in ("_backends", "contexts") for path in (ROOT / room).glob("*.py")]:
        text = path.read_text()
        asked["Driver"] |= set(re.findall(r"\b_?driver\.(\w+)", re.sub(r'"[^"\n]*"', "", text)))
        asked["Functions"] |= set(re.findall(r"\bself\._functions\.(\w+)", text))
    for path in [path for room in ("_backends", "_recording", "tasks") for path in (ROOT / room).glob("*.py")]:
        asked["Graphs"] |= set(re.findall(r"\b(?:self|captures)\.graphs\.(\w+)", path.read_text()))
    for name, file in DRIVERS.items():
        found = class_in(ROOT / f"{file}.py", name)
        words = set(re.findall(r"(?m)^    (\w+) : ", ast.get_docstring(found, clean=False) or ""))
        verbs = {node.name for node in found.body if isinstance(node, ast.FunctionDef)}
        assert asked[name] - verbs - words == set(), name
        assert len(asked[name]) > 5, "the patterns see the calls"


def test_only_contexts_know_their_driver() -> None:
    paths = [path for kind in ("py", "pxd", "pyx") for path in ROOT.rglob(f"*.{kind}")]
    above = [path for path in paths if path.relative_to(ROOT).parts[0] not in ("contexts", "_drivers")]
    assert [path for path in above if re.search(r"(?<![\w.])_driver\b|\._driver\b", path.read_text())] == []
