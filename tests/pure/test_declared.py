"""What the uncompiled form takes from the .pxd files is what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import stf
from stf._support.declared import declared_in, fields_of

ROOT = Path(stf.__file__).parent
DECLARING = sorted(path for path in ROOT.rglob("*.pxd") if path.with_suffix(".py").exists())


def name_of(path):
    return ".".join(("stf", *path.relative_to(ROOT).with_suffix("").parts))


@pytest.mark.parametrize("path", DECLARING, ids=name_of)
def test_every_constant_and_class_is_found(path):
    text, found = path.read_text(), declared_in(name_of(path))
    written = re.findall(r"^    ([A-Z][A-Z_]*) = ", text, re.MULTILINE)
    assert sorted(found.constants) == sorted(written)
    assert list(found.fields) == re.findall(r"^cdef class (\w+)", text, re.MULTILINE)
    plain = re.findall(r"^    cdef (?:readonly |public )?\w+ (\w+)(?=[ ]*(?:#|$))", text, re.MULTILINE)
    known = {field for fields in found.fields.values() for field in fields}
    assert {name for name in plain if name != "__weakref__"} <= known


@pytest.mark.parametrize(
    "line, fields",
    [
        ("int64_t one, other", {"one": 0, "other": 0}),
        ("unsigned long thread", {"thread": 0}),
        ("bint is_held", {"is_held": False}),
        ("double seconds", {"seconds": 0.0}),
        ("object what", {"what": None}),
        ("Replica replica", {"replica": None}),
        ("int64_t* items", {}),
        ("object __weakref__", {}),
    ],
)
def test_fields_begin_as_c_has_them(line, fields):
    assert dict(fields_of(line)) == fields


def test_every_name_that_is_cimported_is_there():
    code = """
import importlib, sys
from pathlib import Path
import stf
from stf._support.declared import declared_in, file_of
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    for source, wanted in declared_in(name).imported:
        if not Path(file_of(source, ".py")).exists() or wanted in ("stf_call_site_outside", "PyDict_GetItemWithError"):
            continue  # C has it
        assert getattr(module, wanted, None) is not None, (name, source, wanted)
"""
    found = subprocess.run(
        [sys.executable, "-c", code, *map(name_of, DECLARING)], env={"STF_PURE": "1", "PYTHONPATH": str(ROOT.parent)}
    )
    assert found.returncode == 0
