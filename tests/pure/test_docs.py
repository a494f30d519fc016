"""The code in README and guide runs, in the order of the page; what is public is documented."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stf

ROOT = Path(__file__).parents[2]
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if page.exists()]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)\)")


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_code_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks(page)))
    environment = {**os.environ, "STF_DEVICES": "cpu:2"}
    done = subprocess.run(
        [sys.executable, "-W", "error", program], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    if page.name == "README.md":
        assert "5.0" in done.stdout


def test_first_program_of_the_readme_runs_as_pasted(tmp_path: Path) -> None:
    program = tmp_path / "pasted.py"
    program.write_text(blocks(ROOT / "README.md")[0])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STF_")}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=100)
    assert done.stdout == "5.0\n", done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_of_the_page_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        assert (page.parent / target).exists(), target


def public_members() -> list[tuple[str, object]]:
    members = []
    for name in stf.__all__:
        thing = getattr(stf, name)
        members.append((name, thing))
        if inspect.isclass(thing):
            members += [(f"{name}.{n}", m) for n, m in vars(thing).items() if not n.startswith("_") and callable(m)]
    return members


@pytest.mark.parametrize("name, thing", public_members(), ids=lambda x: x if isinstance(x, str) else "")
def test_public_things_have_a_docstring(name: str, thing: object) -> None:
    assert (inspect.getdoc(thing) or "").strip(), name


def test_settings_can_be_shown() -> None:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        stf.config.show()
    assert "STF_DEVICES" in text.getvalue()
