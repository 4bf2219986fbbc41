"""What the compiler gets wrong must not reach the program: it runs op by op, with one warning."""

import os
import subprocess
import sys

LYING_OP = """
import warnings, torch, magneto

@torch.library.custom_op("fault::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x])

@twice.register_fake
def _(x):
    return torch.empty_like(x)  # not what the op returns

f = magneto.compile(lambda x: twice(x * 2))
x = torch.randn(4)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for _ in range(3):
        assert torch.equal(f(x), torch.cat([x * 2, x * 2]))
assert [w for w in said if "runs op by op" in str(w.message)], [str(w.message) for w in said]
assert len([w for w in said if issubclass(w.category, RuntimeWarning)]) == 1
"""

NO_LLVM = """
import warnings, torch, magneto
f = magneto.compile(lambda x: (x + 1).sin())
x = torch.randn(100)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    assert torch.equal(f(x), (x + 1).sin()) and torch.equal(f(x), (x + 1).sin())
assert any("pip install llvmlite" in str(w.message) for w in said), [str(w.message) for w in said]
"""


def run(code, **env):
    env = {**os.environ, "MAGNETO_STRICT": "0", **env}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_meta_kernel_that_lies():
    run(LYING_OP)


def test_without_llvm():
    run(NO_LLVM, MAGNETO_LLVM="none", MAGNETO_CACHE="0")


FEW_FILES = """
import os, sys, torch, magneto
folder = os.environ["MAGNETO_CACHE_DIR"]
old = os.path.join(folder, "0" * 32 + ".o")
with open(old, "wb") as f:
    f.truncate(2 << 20)
os.utime(old, (1, 1))
x = torch.randn(100)
assert torch.allclose(magneto.compile(lambda x: (x + 1).sin())(x), (x + 1).sin())
kept = os.listdir(folder)
assert kept and os.path.basename(old) not in kept, kept
"""


def test_object_files_keep_below_the_limit(tmp_path):
    os.chmod(tmp_path, 0o700)
    run(FEW_FILES, MAGNETO_CACHE_DIR=str(tmp_path), MAGNETO_CACHE_MB="1", MAGNETO_CACHE="1")
