"""What `make wheel` relies on: the older functions of glibc, and one list of them in two files."""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tools" / "glibc_2_28.c"


def test_the_linker_wraps_what_the_source_has():
    text = SOURCE.read_text()
    has = set(re.findall(r"^OLDER\([^,]+, (\w+),", text, re.M)) | set(
        re.findall(r"^int __wrap_(\w+)\(", text, re.M)
    )
    wrapped = re.search(r"foreach name : \[(.*?)\]", (ROOT / "meson.build").read_text(), re.S)
    assert wrapped and set(re.findall(r"'(\w+)'", wrapped[1])) == has


@pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("objdump")), reason="needs gcc and binutils")
def test_the_functions_are_in_glibc_2_28(tmp_path):
    library = tmp_path / "older.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-z,defs", SOURCE, "-o", library, "-lm"], check=True)
    symbols = subprocess.run(["objdump", "-T", library], check=True, capture_output=True, text=True).stdout
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", symbols)}
    assert versions and max(versions) <= (2, 28), symbols
