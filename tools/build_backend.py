"""What pip calls to build magneto: meson-python, after a look at what the build needs.

With `--no-build-isolation` pip installs nothing for the build.
What is missing is then named, with the command that installs it.
"""

import importlib.util
import os
import pathlib
import shutil
import sys
import sysconfig
import tomllib

# programs and modules of the packages that [build-system] requires
PROVIDES = {"meson-python": ("mesonpy", None), "meson": (None, "meson"), "ninja": (None, "ninja")}


def _has(module, program):
    return importlib.util.find_spec(module) is not None if module else shutil.which(program) is not None


def _packages():
    """Requirements of the build that this environment lacks."""
    text = (pathlib.Path(__file__).resolve().parent.parent / "pyproject.toml").read_text()
    rows = tomllib.loads(text)["build-system"]["requires"]
    return [row for row in rows if not _has(*PROVIDES[row.split(">=")[0].strip()])]


def _system():
    """(what the system lacks, Debian's package) pairs."""
    lacks = []
    header = pathlib.Path(sysconfig.get_path("include")) / "Python.h"
    if not (os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")):
        lacks.append(("a C compiler", "gcc libc6-dev"))
    if not header.is_file():
        lacks.append((f"the Python headers ({header})", f"python3.{sys.version_info[1]}-dev"))
    return lacks


def check(isolated=False):
    """Ends with a message when something is missing.  isolated: pip installs the packages itself."""
    os.environ["PATH"] = os.pathsep.join(
        filter(None, [os.environ.get("PATH"), sysconfig.get_path("scripts")])
    )
    packages, system = [] if isolated else _packages(), _system()
    if not packages and not system:
        return
    lines = ["magneto cannot be built here."]
    if packages:
        quoted = " ".join(f'"{p}"' for p in packages)
        lines.append(
            f"Missing Python packages. Install them with:\n  {sys.executable} -m pip install {quoted}"
        )
        lines.append("(or let pip do it: leave --no-build-isolation out)")
    for what, debian in system:
        lines.append(f"Missing: {what}. On Debian and Ubuntu:\n  sudo apt-get install {debian}")
    raise SystemExit("\n".join(lines))


def _hook(name):
    def hook(*args, **kwargs):
        check(isolated=name.startswith("get_requires"))
        import mesonpy

        return getattr(mesonpy, name)(*args, **kwargs)

    hook.__name__ = name
    return hook


def _requires(name):
    """pip asks this before it installs what is required; without meson-python there is nothing to add."""
    hook = _hook(name)

    def requires(config_settings=None):
        if importlib.util.find_spec("mesonpy") is None:
            check()
        return hook(config_settings)

    return requires


build_wheel = _hook("build_wheel")
build_sdist = _hook("build_sdist")
build_editable = _hook("build_editable")
get_requires_for_build_wheel = _requires("get_requires_for_build_wheel")
get_requires_for_build_sdist = _requires("get_requires_for_build_sdist")
get_requires_for_build_editable = _requires("get_requires_for_build_editable")
