"""Make the notebook of the tutorial from its page: ``python docs/notebook.py``."""

from __future__ import annotations

import json
import re
from pathlib import Path

DOCS = Path(__file__).parent
PAGE, NOTEBOOK = DOCS / "tutorial.md", DOCS / "tutorial.ipynb"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def cells(text: str) -> list[tuple[str, str]]:
    """The cells of a page, as (kind, source): its code that runs anywhere, and the text around it.

    What the code prints is left out, since the notebook prints it; code for GPUs stays text.
    """
    found, after = [], 0
    for block in FENCE.finditer(text):
        if block[1] in ("python", "text"):
            found.append(("markdown", text[after : block.start()]))
            after = block.end()
            if block[1] == "python":
                found.append(("code", block[2]))
    found.append(("markdown", text[after:]))
    return [(kind, source.strip()) for kind, source in found if source.strip()]


def notebook(text: str) -> str:
    """The notebook of a page, without outputs."""
    made: list[dict[str, object]] = []
    for number, (kind, source) in enumerate(cells(text)):
        cell: dict[str, object] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        cell |= {"execution_count": None, "outputs": []} if kind == "code" else {}
        made.append(cell | {"source": source.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
