"""A virtual environment that uses the system's torch has LLVM and oneDNN beside magneto, not beside torch."""

import os
import pathlib
import subprocess
import sys

import llvmlite
import torch

import magneto

PROGRAM = """
import torch, magneto
from magneto import _magneto
machine = _magneto.machine(None)
print(torch.__file__, magneto.__file__, machine["llvm_library"], machine["llvm_error"], sep="\\n")
x = torch.randn(100)
assert torch.equal(magneto.compile(lambda x: x * 2 + 1)(x), x * 2 + 1)
"""


def link(source: pathlib.Path, to: pathlib.Path, real: str = "") -> None:
    """A folder of links to what is in source; its folder `real` is such a folder again."""
    to.mkdir(parents=True)
    for path in source.iterdir():
        if path.name == real:
            link(path, to / real)
        else:
            (to / path.name).symlink_to(path)


def test_llvm_beside_magneto(tmp_path):
    system, own = tmp_path / "system", tmp_path / "lib" / "python" / "site-packages"
    link(pathlib.Path(torch.__file__).parent, system / "torch", real="lib")
    link(pathlib.Path(magneto.__file__).parent, own / "magneto")
    (own / "llvmlite").symlink_to(pathlib.Path(llvmlite.__file__).parent)
    env = {
        **os.environ,
        "PYTHONPATH": f"{own}:{system}:{os.environ.get('PYTHONPATH', '')}",
        "MAGNETO_STRICT": "1",
    }
    env.pop("MAGNETO_LLVM", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    where = done.stdout.splitlines()
    assert where[0].startswith(str(system)) and where[1].startswith(str(own)), where
    assert where[2] == f"{own}/magneto/../llvmlite/binding/libllvmlite.so", where
