"""Make pictures: of a task graph with Graphviz, of when tasks ran with Matplotlib."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from stf._support.whole_file import whole_file

from .timeline import timeline

__all__ = ["render", "timeline"]

FORMATS = ("svg", "png", "pdf")
DPI = 150


def render(dot_text: str, path: str | Path) -> Path:
    """Draw a graph in the DOT language with Graphviz: its `dot` on the PATH, else that of pygraphviz.

    Parameters
    ----------
    dot_text : str
        What `Context.dot` returned.
    path : str or Path
        Where to write; the suffix .svg, .png or .pdf chooses the format.

    Returns
    -------
    Path
        `path`.

    Raises
    ------
    ValueError
        The suffix is another one.
    RuntimeError
        Graphviz cannot read the text, or write the file.
    ImportError
        There is no Graphviz.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise ValueError(f"cannot draw a graph as {path.suffix!r}; pass a path that ends in .svg, .png or .pdf")
    dot = shutil.which("dot")
    with whole_file(path) as partial:
        if dot is None:
            render_with_library(dot_text, partial, kind)
        else:
            options = [f"-Gdpi={DPI}"] if kind == "png" else []
            command = [dot, f"-T{kind}", *options, "-o", str(partial)]
            done = subprocess.run(command, input=dot_text.encode(), capture_output=True, check=False)
            if done.returncode:
                raise RuntimeError(f"Graphviz failed with {done.returncode}: {done.stderr.decode().strip()}")
    return path


def render_with_library(dot_text: str, path: Path, kind: str) -> None:
    """Draw with the Graphviz that comes with pygraphviz."""
    try:
        import pygraphviz
    except ImportError as error:
        raise ImportError(
            "a task graph is drawn by Graphviz: pip install pygraphviz, or install Graphviz (https://graphviz.org)"
        ) from error
    try:
        graph = pygraphviz.AGraph(string=dot_text)
        if kind == "png":
            graph.graph_attr["dpi"] = str(DPI)
        graph.draw(str(path), prog="dot")
    except (pygraphviz.DotError, ValueError, OSError) as error:
        raise RuntimeError(f"Graphviz failed: {error}") from error
