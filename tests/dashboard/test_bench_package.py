"""`python -m bench` measures the magneto of its checkout, without any environment variable."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WHERE = "import bench, magneto; print(magneto.__file__)"


def where(cwd=ROOT, code=WHERE, **env):
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env={**clean, **env}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip())


def test_the_checkouts_package_is_found():
    assert where() == ROOT / "python" / "magneto" / "__init__.py"


def test_a_package_that_the_user_names_goes_before_it(tmp_path):
    other = tmp_path / "magneto" / "__init__.py"
    other.parent.mkdir()
    other.write_text("")
    assert where(PYTHONPATH=str(tmp_path)) == other


def test_an_installed_package_serves_where_nothing_is_built(tmp_path):
    for name, text in {"bench": (ROOT / "bench" / "__init__.py").read_text(), "python/magneto": ""}.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text(text)
    installed = tmp_path / "installed" / "magneto" / "__init__.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    code = f"import sys; sys.path.append({str(installed.parents[1])!r}); {WHERE}"
    assert where(tmp_path, code) == installed
    (tmp_path / "python" / "magneto" / "_magneto.cpython.so").write_text("")
    assert where(tmp_path, code) == tmp_path / "python" / "magneto" / "__init__.py"
