"""`pip install . --no-build-isolation` says what is missing, and how to install it."""

import pathlib
import subprocess
import sys

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


def hook(call, *, site=False, path="/nonexistent", before=""):
    code = f"import sys; sys.path.insert(0, {str(TOOLS)!r}); import sysconfig\n{before}\nimport build_backend\n{call}"
    flags = ["-I"] if site else ["-I", "-S"]  # without site-packages
    return subprocess.run(
        [sys.executable, *flags, "-c", code], env={"PATH": path}, capture_output=True, text=True
    )


NO_SCRIPTS = "sysconfig.get_path = lambda name: '/nonexistent/' + name"


@pytest.mark.parametrize("name", ["build_wheel", "build_editable"])
def test_what_is_missing_is_named_with_its_command(name):
    done = hook(f"build_backend.{name}('dist')", before=NO_SCRIPTS)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert f'{sys.executable} -m pip install "meson-python>=0.17" "meson>=1.3" "ninja"' in done.stderr
    assert "apt-get install gcc" in done.stderr
    assert f"apt-get install python3.{sys.version_info[1]}-dev" in done.stderr


def test_pip_that_installs_the_packages_itself_is_not_stopped():
    pytest.importorskip("mesonpy")
    done = hook("print(build_backend.get_requires_for_build_wheel())", site=True, path="/usr/bin:/bin")
    assert done.returncode == 0 and "[" in done.stdout, done.stderr
