"""Every example runs as a user runs it, with and without several devices."""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from helpers import on_stand_in

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
NUMBERED = sorted(EXAMPLES.glob("[0-9][0-9]_*.py"))
ON_GPUS = [path for path in NUMBERED if "needs a CUDA device" in path.read_text(encoding="utf-8").split('"""')[1]]
KERNELS = [path.stem for path in NUMBERED if "parallel_for" in path.read_text(encoding="utf-8")]
COMPILING = ("16_kernels", "17_streams_and_pointers", "18_numba_halo", "24_counting_sort", *KERNELS)
PICTURES = {"19_mandelbrot": (640, 480), "20_reaction": (192, 192), "23_nbody": (1040, 520), "25_waves": (320, 240)}
PICTURES["27_weather"] = (1300, 390)
RECORDED = (
    "10_cg_loop",
    "11_heat_replay",
    "12_fork_join",
    "13_burgers",
    "14_training",
    "15_jacobi",
    "30_neural_network",
)
LOGGED = """
import logging, pathlib, runpy, sys
logging.basicConfig(level=logging.INFO)
sys.argv.pop(0)
sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
LONG = ("20_reaction", "21_norms", "22_pi", "23_nbody", "25_waves", "26_cg_kernels", "27_weather")


MIGRATION = sorted((EXAMPLES / "migration").glob("*.py"))


@pytest.mark.parametrize("path", [*ON_GPUS, *MIGRATION], ids=lambda path: path.stem)
def test_examples_of_gpus_say_what_they_need(path):
    """In one line, where there is no GPU."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    environment.pop("STF_DEVICES", None)
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(
        r"\S+ needs a machine with an NVIDIA GPU( and pip install (cupy-cuda13x|torch|numba))?\n", done.stderr
    )


def is_left_out(path: pathlib.Path, devices: str) -> bool:
    """Whether `make test` has enough in another example of kernels in Python, or in the same on other devices."""
    return path.stem in LONG or devices == "cpu"


ANYWHERE = [path for path in NUMBERED if path not in ON_GPUS]


def run(script: pathlib.Path, *arguments: str, devices: str) -> str:
    """Run an example as a user does, and return what it printed."""
    return run_python(script, *arguments, devices=devices).stdout


def run_python(script, *arguments: str, devices: str) -> subprocess.CompletedProcess:
    """Run Python from an empty environment of STF_*; warnings of ours are errors."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STF_")}
    environment |= {"STF_DEVICES": devices, "PYTHONWARNINGS": "error::ResourceWarning"}
    result = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    called = " ".join([*map(str, (script, *arguments)), f"with STF_DEVICES={devices}"])
    assert result.returncode == 0, f"{called}\n{result.stdout}\n{result.stderr}"
    assert "Traceback" not in result.stderr
    assert "ResourceWarning" not in result.stderr
    return result


def png_size(path: pathlib.Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n"), f"{path.name} is no PNG"
    return struct.unpack(">II", head[16:24])


def is_drawn(path: pathlib.Path) -> bool:
    """Whether a picture holds more than its background."""
    from matplotlib import image

    pixels = image.imread(path)
    return bool((pixels != pixels[0, 0]).any())


def test_there_are_examples():
    assert [path.name[:2] for path in NUMBERED] == [f"{i:02}" for i in range(1, len(NUMBERED) + 1)]
    assert len(NUMBERED) >= 7


@pytest.mark.parametrize(
    ("script", "devices"),
    [
        pytest.param(path, devices, marks=pytest.mark.thorough if is_left_out(path, devices) else ())
        for path in ANYWHERE
        for devices in ("cpu", "cpu:3")
    ],
    ids=lambda value: getattr(value, "stem", value),
)
def test_numbered_example(script, devices):
    assert run(script, devices=devices).strip()


@pytest.mark.parametrize("script", NUMBERED, ids=lambda path: path.stem)
def test_numbered_example_on_gpus(script, cuda_device_count):
    if cuda_device_count < 1:
        pytest.skip("no CUDA device")
    pytest.importorskip("cupy")
    if script.stem in COMPILING and on_stand_in():
        pytest.skip("the stand-in for CUDA runs no kernels that are compiled")
    done = run_python("-c", LOGGED, str(script), devices="cuda")
    assert done.stdout.strip()
    if script.stem in RECORDED:
        assert "driven from the host" not in done.stderr
    if script.stem in ("11_heat_replay", "14_training") and "is not installed" not in done.stdout:
        assert re.search(r"launched 1\d\d times", done.stdout)  # of 200 calls


@pytest.mark.parametrize("script", MIGRATION, ids=lambda path: path.stem)
def test_migration_on_gpus(script, cuda_device_count):
    """Both forms agree, which the program asserts, and it prints the time of both."""
    if cuda_device_count < 1:
        pytest.skip("no CUDA device")
    if on_stand_in():
        pytest.skip("the stand-in for CUDA has none of the libraries")
    pytest.importorskip("numba.cuda" if script.stem.startswith("numba") else script.stem.partition("_")[0])
    assert re.search(r"streams [\d.]+ ms, tasks [\d.]+ ms\n$", run_python(script, devices="cuda").stdout)


@pytest.mark.parametrize("script", NUMBERED, ids=lambda path: path.stem)
def test_numbered_example_starts_with_a_picture_and_asserts(script):
    text = script.read_text(encoding="utf-8")
    docstring = text.split('"""')[1]
    assert any(arrow in docstring for arrow in ("-->", "->", "\\")), "no picture of the task graph in the docstring"
    assert "assert" in text.split("def main")[1]


@pytest.mark.thorough
@pytest.mark.parametrize("name", PICTURES)
def test_example_writes_its_picture(tmp_path, name):
    run(EXAMPLES / f"{name}.py", "--out", str(tmp_path), devices="cpu")
    picture = tmp_path / f"{name[3:]}.png"
    assert png_size(picture) == PICTURES[name]
    assert is_drawn(picture)


@pytest.mark.thorough
@pytest.mark.parametrize("devices", ["cpu", "cpu:3"])
def test_regression_writes_its_pictures(tmp_path, devices):
    if shutil.which("dot") is None:
        pytest.importorskip("pygraphviz")
    out = tmp_path / "demo"
    printed = run(EXAMPLES / "gp_cholesky.py", "--out", str(out), "--repeat", "1", devices=devices)
    assert "residual" in printed
    assert "1,703 values" in printed and "522 values up to 2002.0" in printed  # which the regression does not get
    forecast, measured = (
        float(re.search(pattern, printed)[1]) for pattern in (r"forecast +(\S+)", r"the last is (\S+)")
    )
    assert abs(forecast - measured) < 2
    assert float(re.search(r"off by (\S+)", printed)[1]) < 1.5
    assert {path.name for path in out.iterdir()} == {
        "fit.png",
        "timeline.png",
        "graph.dot",
        "graph.svg",
        "graph.png",
    }
    assert png_size(out / "fit.png") == (1430, 1066)
    assert png_size(out / "timeline.png")[0] == 1820
    width, height = png_size(out / "graph.png")
    assert width > 300
    assert height > 300
    assert all(is_drawn(out / name) for name in ("fit.png", "timeline.png", "graph.png"))
    dot = (out / "graph.dot").read_text(encoding="utf-8")
    assert dot.count("potrf(") == 5
    assert xml.etree.ElementTree.parse(out / "graph.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize("devices", ["cpu", "cpu:4"])
def test_synthetic_factorization_with_ragged_tiles(devices):
    printed = run(
        EXAMPLES / "gp_cholesky.py",
        "--n",
        "333",
        "--tile",
        "64",
        "--repeat",
        "1",
        "--devices",
        devices,
        devices="cpu",
    )
    assert "order 333, tiles of 64" in printed
    assert "residual" in printed


@pytest.mark.thorough
def test_series_of_ones_own(tmp_path):
    rows = [f"{1990 + month // 12}-{month % 12 + 1:02}-15,{month % 12 - 5.5 + 0.02 * month}" for month in range(240)]
    (tmp_path / "mine.csv").write_text("\n".join(["day,level", *rows, "2010-01-15,"]), encoding="utf-8")
    arguments = (
        "--csv",
        str(tmp_path / "mine.csv"),
        "--date-column",
        "day",
        "--value-column",
        "level",
        "--tile",
        "64",
    )
    printed = run(EXAMPLES / "gp_cholesky.py", *arguments, "--repeat", "1", "--hold-out", "2", devices="cpu")
    assert "215 values of level" in printed
    assert "1 gaps" in printed
    assert "fitted" in printed


def test_wrong_column_names_the_columns(tmp_path):
    (tmp_path / "mine.csv").write_text("day,level\n2010-01-15,1\n", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / "gp_cholesky.py"), "--csv", str(tmp_path / "mine.csv")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode != 0
    assert "no column 'date'; its columns are day, level" in result.stderr
