"""The code of the pages and of the docstrings runs; what is public is documented, with an example."""

from __future__ import annotations

import ast
import codeop
import contextlib
import doctest
import inspect
import io
import linecache
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stf

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import pages  # noqa: E402

DOCS = ROOT / "docs"
PAGES = [page for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if page.exists()]
REFERENCE = sorted((DOCS / "reference").glob("*.md"))
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)\s]*)?\)")
DIRECTIVE = re.compile(r"^\.\. (?:auto\w+|py:data):: (?:stf\.)?([\w.]+)", re.MULTILINE)
NEEDS = re.compile(r"# needs (a GPU|torch)")

# What numbers have, and members that are documented with their class.
PRIVATE = {
    "DataPlace": {"index", "kind"},
    "DriverError": {"call", "code", "name", "place", "tasks"},
    "Evaluation": {"count", "index"},
    "access_mode": set(dir(int)) | set(vars(stf.access_mode)),
    "hw_scope": set(dir(int)) | set(vars(stf.hw_scope)),
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# -- pages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in PAGES if pages.blocks(page)], ids=name_of)
def test_code_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "STF_DEVICES": "cpu:2", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "tests" / "pages.py", page],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    if page.name == "README.md":
        assert "5.0" in done.stdout


def test_first_program_of_the_readme_runs_as_pasted(tmp_path: Path) -> None:
    program = tmp_path / "pasted.py"
    program.write_text(pages.blocks(ROOT / "README.md")[0].code)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STF_")}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=100)
    assert done.stdout == "5.0\n", done.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/tutorial.md"])
def test_first_program_can_be_pasted_into_a_prompt(page: str) -> None:
    """There an empty line ends a block, and nothing else does."""
    lines: list[str] = []
    for line in [*pages.blocks(ROOT / page)[0].code.splitlines(), ""]:
        lines += [line] if lines or line else []
        if lines and codeop.compile_command("\n".join(lines), page, "single") is not None:
            lines = []
    assert not lines, lines


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_the_page_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(re.sub(r"```.*?```|`[^`\n]*`\S*", "", page.read_text(), flags=re.DOTALL)):
        assert (page.parent / target).exists(), target


def test_what_a_page_says_is_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1, 2)\n```\n\n```text\n1 ... 3\n```\n")
    with pytest.raises(AssertionError, match="page.md:2 prints"):
        pages.run(page)
    page.write_text("```py\nimport cupy\n```\n")
    with pytest.raises(ValueError, match="needs a GPU"):
        pages.blocks(page)


def test_gallery_has_every_example() -> None:
    text = (DOCS / "gallery.md").read_text()
    examples = sorted(path.name for path in (ROOT / "examples").glob("[0-9g]*.py"))
    examples += [f"migration/{path.name}" for path in (ROOT / "examples" / "migration").glob("*.py")]
    assert [name for name in examples if f"examples/{name}" not in text] == [] and len(examples) > 20


def test_links_of_the_site_are_followed(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="a.html#there">1</a><a href="a.html#gone">2</a><a href="b.html">3</a>'
    )
    (tmp_path / "a.html").write_text('<p id="there"><a href="https://example.org/x">4</a><a href="#top">5</a></p>')
    program = DOCS / "links.py"
    done = subprocess.run([sys.executable, program, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert re.findall(r": (\S+)$", done.stderr, re.MULTILINE) == ["a.html#gone", "b.html"]


# -- names ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def members_shown() -> Iterator[dict[type, list[str]]]:
    """What completion shows of objects of the classes that choose it."""
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.zeros(3))
        with ctx.task(x.rw()) as task:
            pass
        with ctx.freeze(x) as frozen:
            objects = [ctx, x, task, frozen, ctx.task_graph(), stf.Resources()]
            yield {type(thing): [name for name in dir(thing) if not name.startswith("_")] for thing in objects}


def public_names() -> list[str]:
    """The public names, and those of what is public in them."""
    names = []
    with members_shown() as shown:
        for name in stf.__all__:
            thing = getattr(stf, name)
            names.append(name)
            if inspect.isclass(thing):
                inherited = set(dir(BaseException if issubclass(thing, BaseException) else object))
                found = shown.get(thing) or sorted(set(dir(thing)) - inherited - PRIVATE.get(name, set()))
                if issubclass(thing, (stf.LogicalData, np.ndarray)) and thing is not stf.LogicalData:
                    found = [member for member in found if member in vars(thing)]  # the others stand with their class
                names += [f"{name}.{member}" for member in found if not member.startswith("_")]
    return [*names, *MEMBERS]


MEMBERS = ["config.show", "config.reload", "config.check", *(f"placement.{name}" for name in stf.placement.__all__)]
PUBLIC = public_names()


def found(name: str) -> Any:
    """The object of a public name: of a property, the property."""
    thing: Any = stf
    for part in name.split("."):
        static = inspect.getattr_static(thing, part, None)
        thing = static if isinstance(static, property) else getattr(thing, part, static)
    return thing


def docstrings_of_the_sources() -> dict[tuple[str, str], str]:
    """The docstrings by module and qualified name: of what is compiled, too, built or not yet."""
    known: dict[tuple[str, str], str] = {}

    def note(module: str, prefix: str, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                text = ast.get_docstring(child)
                if text is not None:
                    known[module, prefix + child.name] = text
                if isinstance(child, ast.ClassDef):
                    note(module, f"{prefix}{child.name}.", child)
            elif isinstance(child, (ast.If, ast.Try)):
                note(module, prefix, child)

    source = Path(stf.__file__).parent
    for path in source.rglob("*.py"):
        module = ".".join(["stf", *path.relative_to(source).with_suffix("").parts])
        note(module, "", ast.parse(path.read_text(encoding="utf-8")))
    return known


SOURCES = docstrings_of_the_sources()


def docstring(name: str) -> str:
    """The docstring of a public name; of a value that has none of its own, nothing."""
    thing = found(name)
    if "." in name and not (callable(thing) or isinstance(thing, property) or inspect.isdatadescriptor(thing)):
        return ""
    maker = thing.fget if isinstance(thing, property) else thing
    owner = getattr(maker, "__objclass__", None)
    if owner is not None:
        key = owner.__module__, f"{owner.__qualname__}.{maker.__name__}"
    else:
        key = getattr(maker, "__module__", ""), getattr(maker, "__qualname__", "")
    return SOURCES.get(key) or inspect.getdoc(thing) or ""


def code_of_the_reference() -> str:
    return "\n".join(block.code for page in REFERENCE for block in pages.blocks(page))


@pytest.mark.parametrize("name", [name for name in PUBLIC if callable(found(name))])
def test_public_things_have_a_docstring(name: str) -> None:
    assert docstring(name).strip(), name


def test_public_names_have_an_example() -> None:
    """In their docstring, in that of their class, or on a page of the reference."""
    code = code_of_the_reference()
    lacking = []
    for name in PUBLIC:
        owner, _, member = name.rpartition(".")
        is_shown = ">>>" in docstring(name)
        if owner and not is_shown:
            used = rf"\.{member}\b"
            is_shown = re.search(used, examples_in(docstring(owner))) is not None or re.search(used, code) is not None
        if not is_shown and re.search(rf"\bstf\.{re.escape(name)}\b", code) is None:
            lacking.append(name)
    assert lacking == []


def test_public_names_stand_in_the_reference() -> None:
    documented = {name for page in REFERENCE for name in DIRECTIVE.findall(page.read_text())}
    assert len(documented) > 150
    text = "\n".join(page.read_text() for page in REFERENCE)
    lacking = [
        name
        for name in PUBLIC
        if name not in documented
        and re.search(rf"`(?:stf\.)?(?:{re.escape(name)}|{name.rpartition('.')[2]})\b", text) is None
    ]
    assert lacking == []


def test_table_of_the_contexts_methods_has_all_of_them() -> None:
    rows = [line for line in (DOCS / "reference" / "contexts.md").read_text().splitlines() if line.startswith("| ")]
    table = "\n".join(rows)
    lacking = [name for name in PUBLIC if name.startswith("Context.") and not re.search(rf"\b{name[8:]}\b", table)]
    assert lacking == [] and len(rows) > 35


# -- examples of docstrings ----------------------------------------------------------------------------------------


def examples_in(text: str) -> str:
    return "\n".join(example.source for example in doctest.DocTestParser().get_examples(text))


EXAMPLES = [name for name in PUBLIC if ">>>" in docstring(name)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_of_the_docstring_runs(name: str) -> None:
    run_examples(name, docstring(name))


def run_examples(name: str, text: str) -> None:
    """Run the examples of a docstring, as a notebook does: what a with-block's lines return is not shown."""
    examples = doctest.DocTestParser().get_examples(text)
    need = NEEDS.search(text)
    if need is not None:
        assert need[1] == "torch" or examples[-1].want, f"{name}: an example for GPUs shows nothing"
        needs = ("a GPU", "CuPy") if need[1] == "a GPU" else ("PyTorch",)
        lacks = list(pages.missing((*needs, "Numba") if "numba.cuda" in text else needs))
        if lacks:
            pytest.skip(f"needs {', '.join(lacks)}")
    namespace = {"__name__": "__main__", "np": np, "stf": stf}
    checker = doctest.OutputChecker()
    for example in examples:
        file = f"<example of {name}, line {example.lineno + 1}>"
        linecache.cache[file] = len(example.source), None, example.source.splitlines(keepends=True), file
        mode = "single" if isinstance(ast.parse(example.source).body[0], ast.Expr) else "exec"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example.source, file, mode), namespace)
        got = printed.getvalue()
        assert checker.check_output(example.want, got, pages.COMPARED), f"{file}: got\n{got}\nexpected\n{example.want}"


def test_an_example_that_is_wrong_is_found() -> None:
    with pytest.raises(AssertionError, match="expected"):
        run_examples("wrong", ">>> 1 + 1\n3\n")


def test_settings_can_be_shown() -> None:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        stf.config.show()
    assert all(setting.variable in text.getvalue() for setting in stf.config.SETTINGS)
