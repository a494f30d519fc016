"""The modules of the examples import each other as a script's do: from its folder."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples"))
