"""Damaged files in the folder of stored plans: the programs that find them still have to do what eager does.

A program fills a folder of its own.  Its files are damaged, it runs again without what the process has kept, and so on.
Only the folder's owner is played: who can write a key and a digest is trusted (SECURITY.md).
"""

import gc
import os
import pathlib
import random
import shutil
import tempfile
from dataclasses import dataclass, replace

import judge
import magneto
import random_models
import shrink
from magneto import _magneto

_folder = None


@dataclass
class Damaged:
    program: random_models.Program
    rounds: list  # of each: the seeds of what is done to files


def folder():
    """Where this process keeps plans; the first call has to come before the first compilation."""
    global _folder
    if _folder is None:
        _folder = pathlib.Path(tempfile.mkdtemp(prefix="magneto-fuzz-"))
        os.environ["MAGNETO_CACHE"] = "1"
        os.environ["MAGNETO_CACHE_DIR"] = str(_folder / "cache")
    return _folder / "cache"


# ---- damage ----


def flipped(path, r, files):
    data = bytearray(path.read_bytes())
    for _ in range(r.choice([1, 1, 2, 8, 64]) if data else 0):
        data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    path.write_bytes(data)


def cut(path, r, files):
    data = path.read_bytes()
    path.write_bytes(data[: r.choice([0, r.randrange(len(data) + 1), 64, len(data) - 1])])


def longer(path, r, files):
    with open(path, "ab") as f:
        f.write(r.randbytes(r.choice([1, 8, 5000])))


def zeroed(path, r, files):
    data = bytearray(path.read_bytes())
    at = r.randrange(len(data) + 1)
    data[at : at + 512] = bytes(len(data[at : at + 512]))
    path.write_bytes(data)


def swapped(path, r, files):
    other = r.choice(files)
    a, b = path.read_bytes(), other.read_bytes()
    path.write_bytes(b)
    other.write_bytes(a)


def replaced(path, r, files):
    path.write_bytes(r.choice(files).read_bytes())


def mode(path, r, files):
    path.chmod(r.choice([0o602, 0o620, 0o666, 0o777, 0o644, 0o400, 0o000, 0o4600]))


def linked(path, r, files):
    other = r.choice(files)
    data = path.read_bytes()
    path.unlink()
    kind = r.randrange(5)
    if kind == 0:
        os.symlink(path.parent / "nothing", path)
    elif kind == 1:
        os.symlink(path, path)
    elif kind == 2:
        os.symlink("/dev/zero", path)
    elif kind == 3 and other != path:
        os.link(other, path)
    else:
        away = path.parent.parent / path.name
        away.write_bytes(data)
        os.symlink(away, path)


def fifo(path, r, files):
    path.unlink()
    os.mkfifo(path, 0o600)


def directory(path, r, files):
    path.unlink()
    path.mkdir(0o700)
    (path / "inside").write_bytes(b"x")


def gone(path, r, files):
    path.unlink()


def open_folder(path, r, files):
    path.parent.chmod(r.choice([0o777, 0o770, 0o500]))


DAMAGE = (
    [flipped] * 4
    + [cut] * 3
    + [swapped, replaced, mode, linked] * 2
    + [longer, zeroed, fifo, directory, gone, open_folder]
)


def damage(seed):
    """One of the files, chosen by the seed; special ones that are there are left."""
    r = random.Random(seed)
    files = sorted(p for p in folder().iterdir() if p.is_file() and not p.is_symlink())
    if files:
        r.choice(DAMAGE)(r.choice(files), r, files)


# ---- a kind of programs ----


def make(seed):
    folder()
    r = random.Random(seed)
    rounds = [[r.randrange(10**9) for _ in range(r.choice([1, 1, 2, 5]))] for _ in range(3)]
    program = random_models.program(seed)
    return Damaged(longer_than_small(program), rounds)


def longer_than_small(program):
    """Plans of small graphs are not stored: a chain of operations is added."""
    chain = ["w = x0.to(F32)", *["w = w.sin() * 0.5 + w.cos()"] * 9]
    return program.copy(body=[*program.body, *chain], result=[*program.result, "w"], calls=program.calls[:2])


def forget():
    magneto.reset()
    gc.collect()
    _magneto.kernel_cache_clear()


def empty():
    if folder().exists():
        folder().chmod(0o700)
    shutil.rmtree(folder().parent, ignore_errors=True)
    folder().parent.mkdir(0o700)


def check(d):
    """Raises judge.Difference where the program is not what eager is, after damage only."""
    empty()
    forget()
    try:
        judge.check(d.program)
    except judge.Difference as e:  # is found by another kind
        raise judge.NotAProgram from e
    for k, seeds in enumerate(d.rounds):
        if not folder().exists():
            break  # nothing was compiled
        for seed in seeds:
            damage(seed)
        forget()
        try:
            judge.check(d.program)
        except judge.Difference as e:
            raise judge.Difference(e.kind, f"after damage {k}: {e}") from e
        folder().chmod(0o700)


def smaller(d):
    for k in range(len(d.rounds)):
        yield replace(d, rounds=d.rounds[:k] + d.rounds[k + 1 :])
    for k, seeds in enumerate(d.rounds):
        for i in range(len(seeds) if len(seeds) > 1 else 0):
            yield replace(d, rounds=[*d.rounds[:k], seeds[:i] + seeds[i + 1 :], *d.rounds[k + 1 :]])
    for program in shrink.smaller(d.program):
        yield replace(d, program=program)


MAIN = """
import pathlib, sys

sys.path[:0] = [str(pathlib.Path({root!r}) / p) for p in ("tests/fuzz", "tests", "python")]
import cache_files
from random_models import Program

d = cache_files.Damaged({program!r}, {rounds!r})
if __name__ == "__main__":
    cache_files.check(d)
"""


def text(d, message):
    root = str(pathlib.Path(__file__).resolve().parents[2])
    note = message.replace("\\", "/").replace('"""', "'''")
    return f'"""{note}"""\n\n{d.program.text()}{MAIN.format(root=root, program=d.program, rounds=d.rounds)}'
