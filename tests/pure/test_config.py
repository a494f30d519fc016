"""The settings: types, precedence, messages."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from stf import config

FLAGS = [s.name for s in config.SETTINGS if s.kind == "flag"]
DOT = [s for s in config.SETTINGS if s.name.startswith("dot_")]


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    yield
    config.reload()


def test_defaults() -> None:
    config.reload({})
    assert config.devices is None
    assert config.dot_ignore_prereqs is True
    on = ["limit_blas", "conditional_nodes", "host_pool", "reuse_devices", "dot_ignore_prereqs"]
    assert [name for name in FLAGS if getattr(config, name)] == on
    assert all(s.source == "default" and s.value == s.default for s in config.SETTINGS)


def test_each_setting_is_declared_for_type_checkers() -> None:
    kinds = {"text": "str", "flag": "bool", "count": "int", "integer": "int", "bytes": "int", "capacity": "int"}
    declared = {n: a for n, a in config.__annotations__.items() if n != "SETTINGS" and not n.startswith("_")}
    assert declared == {s.name: kinds[s.kind] + " | None" * (s.default is None) for s in config.SETTINGS}
    assert len(typing.get_type_hints(config)) >= len(declared)


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize(("text", "value"), [("1", True), ("on", True), ("True", True), ("0", False), ("no", False)])
def test_flags(name: str, text: str, value: bool) -> None:
    config.reload({f"STF_{name.upper()}": text})
    assert getattr(config, name) is value


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1", 1),
        ("4096", 4096),
        ("64B", 64),
        ("10kB", 10_000),
        ("1.5GiB", 3 << 29),
        ("2GiB", 2 << 30),
        ("2gib", 2 << 30),
        ("2 GB", 2_000_000_000),
        ("3Mi", 3 << 20),
        ("1T", 10**12),
    ],
)
def test_bytes(text: str, nbytes: int) -> None:
    config.reload({"STF_MEMORY_LIMIT": text})
    assert config.memory_limit == nbytes


@pytest.mark.parametrize(("text", "nbytes"), [("0", 0), ("0MiB", 0), ("512MiB", 512 << 20)])
def test_a_capacity_may_be_none(text: str, nbytes: int) -> None:
    config.reload({"STF_GRAPH_CACHE": text})
    assert config.graph_cache == nbytes


def test_numbers_and_text() -> None:
    config.reload({"STF_CPU_WORKERS": "3", "STF_HOSTILE": "-7", "STF_DEVICES": " cpu:4 ", "STF_DOT_MAX_DEPTH": "0"})
    assert (config.cpu_workers, config.hostile, config.devices, config.dot_max_depth) == (3, -7, "cpu:4", 0)


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("STF_BLOCKING", "maybe", "1 or 0"),
        ("STF_CPU_WORKERS", "0", "a positive integer"),
        ("STF_MAX_PENDING", "many", "a positive integer"),
        ("STF_MEMORY_LIMIT", "2 buckets", "a number of bytes"),
        ("STF_MEMORY_LIMIT", "0", "a number of bytes"),
        ("STF_MEMORY_LIMIT", "5iB", "a number of bytes"),
        ("STF_GRAPH_CACHE", "-1", "0, or a number of bytes"),
        ("STF_HOSTILE", "0x", "an integer"),
        ("CUDASTF_DOT_TIMING", "often", "1 or 0"),
    ],
)
def test_a_malformed_value_is_named_and_changes_nothing(variable: str, text: str, expected: str) -> None:
    config.reload({"STF_DEVICES": "cpu:2"})
    with pytest.raises(ValueError, match=rf"^{variable}={text!r} is malformed: set it to {expected}.*, or unset it$"):
        config.reload({"STF_DEVICES": "cpu:8", variable: text})
    assert config.devices == "cpu:2"
    assert next(s.value for s in config.SETTINGS if s.name == "devices") == "cpu:2"


@pytest.mark.parametrize("setting", DOT, ids=lambda s: s.name)
def test_the_older_names_work_and_the_new_ones_win(setting: config.Setting) -> None:
    old, new = {"text": ("a", "b"), "flag": ("1", "0"), "integer": ("1", "2")}[setting.kind]
    config.reload({f"CUDASTF_{setting.name.upper()}": old})
    assert config.show is not None and str(setting.value) in (old, "True")
    assert setting.source == "environment"
    config.reload({f"CUDASTF_{setting.name.upper()}": old, setting.variable: new})
    assert str(setting.value) in (new, "False")


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("validate", 1, True),
        ("validate", "off", False),
        ("memory_limit", "2GiB", 2 << 30),
        ("memory_limit", None, None),
        ("cpu_workers", 3, 3),
        ("dot_file", Path("g.dot"), "g.dot"),
    ],
)
def test_a_program_assigns_settings(name: str, value: object, found: object) -> None:
    setattr(config, name, value)
    assert getattr(config, name) == found
    assert next((s.value, s.source) for s in config.SETTINGS if s.name == name) == (found, "program")


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("validate", "maybe", ValueError, "stf.config.validate='maybe' is malformed: set it to 1 or 0$"),
        ("validate", None, TypeError, "stf.config.validate is 1 or 0, got None"),
        ("cpu_workers", 0, ValueError, "set it to a positive integer"),
        ("cpu_workers", True, TypeError, "is a positive integer, such as 8, got True"),
        ("memory_limit", 1.5, TypeError, "is a number of bytes, such as .*, got 1.5"),
        ("devices", 2, TypeError, "is text, got 2"),
        ("valdate", True, AttributeError, "stf.config has no setting 'valdate'; it has devices, pure"),
    ],
)
def test_what_a_program_cannot_assign(name: str, value: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        setattr(config, name, value)
    assert all(
        getattr(config, s.name) == s.value == s.default for s in config.SETTINGS if s.name not in ("pure", "cache_dir")
    )


def test_only_the_picture_has_older_names() -> None:
    config.reload({"CUDASTF_DEVICES": "cpu:4"})
    assert config.devices is None


def test_an_empty_variable_is_unset() -> None:
    config.reload({"STF_BLOCKING": "", "STF_DEVICES": " "})
    assert config.blocking is False and config.devices is None


def test_show_prints_every_setting_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    config.reload({"STF_DEVICES": "cpu:4", "STF_DOT_IGNORE_PREREQS": "0"})
    config.show()
    rows = {line.split()[0]: line.split()[1:3] for line in capsys.readouterr().out.splitlines()}
    assert rows.keys() == {s.variable for s in config.SETTINGS}
    assert rows["STF_DEVICES"] == ["cpu:4", "environment"]
    assert rows["STF_DOT_IGNORE_PREREQS"] == ["0", "environment"]
    assert rows["STF_PURE"] == ["0", "default"]
    assert rows["STF_CPU_WORKERS"] == ["-", "default"]


def test_every_variable_that_the_sources_name_is_a_setting() -> None:
    known = {v for s in config.SETTINGS for v in s.variables}
    for path in sorted(Path(config.__file__).parent.rglob("*.py")):
        named = set(re.findall(r"\b(?:CUDA)?STF_[A-Z][A-Z_]*[A-Z]\b", path.read_text()))
        assert named <= known, path
