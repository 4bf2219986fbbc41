"""The cache folder (SECURITY.md): only this user's own files are read, nothing blocks, damage is a miss; one warning if off."""

import os
import subprocess
import sys

import pytest

START = """
import gc, glob, hashlib, os, sys, warnings
seen = []
warnings.showwarning = lambda message, category, *rest: seen.append((category, str(message)))
import torch, magneto
from magneto import _magneto

torch.set_num_threads(1)
folder = os.environ["MAGNETO_CACHE_DIR"]

def files(kind):
    return sorted(glob.glob(os.path.join(folder, "*." + kind)))

def deep(x, w):
    for _ in range(8):
        x = x.sin() * 0.5 + x.cos() + w
    return x

x, w = torch.randn(6, 6), torch.randn(6)
want = deep(x, w)

def run():
    # What one compilation did with the folder: (plans loaded, plans saved).
    magneto.reset()
    gc.collect()
    _magneto.kernel_cache_clear()
    before = _magneto.kernel_cache_info()
    torch.testing.assert_close(magneto.compile(deep)(x, w), want)
    after = _magneto.kernel_cache_info()
    return tuple(after[k] - before[k] for k in ("plans_loaded", "plans_saved"))

def count(name):
    return _magneto.disk_cache_info()[name]

def told(word):
    return [text for category, text in seen if category is RuntimeWarning and word in text]
"""

OFF = (
    START
    + """
assert run() == (0, 0) and run() == (0, 0)
assert len(told("not kept on disk")) == 1 == len(seen), seen
print(told("not kept on disk")[0])
assert _magneto.disk_cache_info()["off"] in seen[0][1]
from magneto import doctor
(line,) = [f for f in doctor.examine() if f.name == "cache"]
assert not line.ok and line.text == _magneto.disk_cache_info()["off"], line
"""
)

FILES = (
    START
    + """
assert run() == (0, 1) and run() == (1, 0)
(plan,), (code,) = files("plan"), files("o")
for path in (plan, code, os.path.join(folder, "key")):
    assert os.stat(path).st_mode & 0o777 == 0o600, path
good = {path: open(path, "rb").read() for path in (plan, code)}
away = folder + ".elsewhere"
os.mkdir(away, 0o700)

def put(path):
    with open(path, "wb") as f:
        f.write(good[path])

def others_write(path):
    os.chmod(path, 0o602)

def group_writes(path):
    os.chmod(path, 0o620)

def link(path):
    moved = os.path.join(away, os.path.basename(path))
    os.replace(path, moved)
    os.symlink(moved, path)

def dangling(path):
    os.unlink(path)
    os.symlink(os.path.join(away, "nothing"), path)

def fifo(path):
    os.unlink(path)
    os.mkfifo(path, 0o600)

def socket(path):
    import socket
    os.unlink(path)
    here = os.getcwd()
    os.chdir(os.path.dirname(path))
    socket.socket(socket.AF_UNIX).bind(os.path.basename(path))
    os.chdir(here)

def foreign(path):
    os.chown(path, 12345, 12345)

spoilers = [others_write, group_writes, link, dangling, fifo, socket] + [foreign] * (os.geteuid() == 0)
for spoil in spoilers:
    for path in (plan, code):
        refused = count("refused")
        spoil(path)
        assert count("not_allowed") == 1, spoil
        made = run()
        assert made == (0, 1), (spoil, path, made)  # compiled anew
        assert count("refused") > refused, spoil
        assert count("not_allowed") == 0 and not os.path.islink(path), spoil  # and replaced
        assert open(path, "rb").read() == good[path] and os.stat(path).st_uid == os.geteuid()
        assert run() == (1, 0), spoil
assert len(told("is not used")) == 1 == len(seen), seen
"""
)

DAMAGE = (
    START
    + """
assert run() == (0, 1)
(plan,), (code,) = files("plan"), files("o")
for path in (plan, code):
    good = open(path, "rb").read()
    spoiled = [good[:n] for n in (0, 1, 40, 63, 64, 65, len(good) - 8, len(good) - 1)] + [good + b"x", b"\\0" * len(good)]
    for at in [*range(0, 72, 3), *range(72, len(good), len(good) // 20)]:
        spoiled.append(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
    swapped = bytearray(good)  # two words that a sum would not miss
    swapped[80:88], swapped[88:96] = good[88:96], good[80:88]
    if bytes(swapped) != good:
        spoiled.append(bytes(swapped))
    for bad in spoiled:
        with open(path, "wb") as f:
            f.write(bad)
        damaged = count("damaged")
        assert run() == (0, 1), path
        assert count("damaged") > damaged and open(path, "rb").read() == good
assert run() == (1, 0)

# Files that were made under another key are not ours: unpacked from an archive, copied from another user.
key = os.path.join(folder, "key")
os.rename(key, key + ".away")
os.rename(key + ".away", key)
whole = open(plan, "rb").read()
def head(other):
    return whole[:32] + hashlib.blake2b(whole[:32] + whole[64:], digest_size=32, key=other).digest() + whole[64:]
assert head(open(key, "rb").read()) == whole
with open(plan, "wb") as f:
    f.write(head(bytes(32)))
assert run() == (0, 1) and open(plan, "rb").read() == whole
assert not seen, seen
"""
)

KEY = (
    START
    + """
mine = os.path.join(folder, "key")
before = open(mine, "rb").read()
assert len(before) == 32 and len(set(before)) > 8
spoil = sys.argv[1]
if spoil == "readable":
    os.chmod(mine, 0o644)
elif spoil == "short":
    os.truncate(mine, 31)
elif spoil == "link":
    os.rename(mine, folder + ".key")
    os.symlink(folder + ".key", mine)
elif spoil == "fifo":
    os.unlink(mine)
    os.mkfifo(mine, 0o600)
elif spoil == "gone":
    os.unlink(mine)
assert run() == ((1, 0) if spoil == "none" else (0, 1)), spoil
assert run() == (1, 0)
assert (open(mine, "rb").read() == before) == (spoil == "none")
assert os.lstat(mine).st_mode == 0o100600 and os.stat(mine).st_size == 32
"""
)

WRITERS = (
    START
    + """
import resource, time
def temporary(age, name="tmp-" + "0" * 32):
    path = os.path.join(folder, name)
    with open(path, "wb") as f:
        f.truncate(100_000)
    os.utime(path, (time.time() - age,) * 2)
    return path

# Writers that were killed: what they left is removed once it is old, and counted as long as it is there.
_magneto.disk_cache_info()  # makes the folder
old, older = temporary(7200), temporary(9999, "0" * 32 + ".o.4711.3")
new, other = temporary(1, "tmp-" + "1" * 32), temporary(9999, "notes.txt")
assert count("temporaries") == 3 and count("bytes") > 300_000
assert run() == (0, 1)
assert count("temporaries") == 1 and count("removed") == 2 and count("bytes") < 300_000
assert not os.path.exists(old) and not os.path.exists(older) and os.path.exists(new) and os.path.exists(other)

# One that cannot go on (a full disk) leaves nothing, and the program does not notice.
for path in files("plan") + files("o"):
    os.unlink(path)
stored, limit = count("stored"), resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
assert run() == (0, 1)
resource.setrlimit(resource.RLIMIT_FSIZE, limit)
assert count("stored") == stored and count("temporaries") == 1 and not files("o") and not files("plan")
assert run() == (0, 1) and run() == (1, 0) and not seen, seen
"""
)

DESCRIPTOR = (
    START
    + """
assert run() == (0, 1)
(held,) = [int(fd) for fd in os.listdir("/proc/self/fd") if os.path.realpath("/proc/self/fd/" + fd) == os.path.realpath(folder)]
assert not os.get_inheritable(held)

# The program closes it, and the number goes to another folder: nothing is read from there or written there.
away = folder + ".elsewhere"
os.mkdir(away, 0o777)
other = os.open(away, os.O_RDONLY)
os.dup2(other, held)
assert run() == (1, 0) and os.listdir(away) == []
os.fstat(held)  # not ours to close

# The folder is removed: it is made again.
import shutil
shutil.rmtree(folder)
assert run() == (0, 1) and run() == (1, 0) and os.stat(folder).st_mode & 0o777 == 0o700

# The folder becomes open to others while it is in use.
os.chmod(folder, 0o777)
assert run() == (0, 0) and run() == (0, 0) and count("off")
assert len(told("not used any more")) == 1 == len(seen), seen
os.chmod(folder, 0o700)
assert run() == (1, 0)
"""
)

FUZZ = (
    START
    + """
import random
sys.path.insert(0, os.path.join(os.getcwd(), "tests"))
from graphs import graph_text

def program(x, w, i):
    d = deep(x, w)
    y = torch.linalg.cholesky(d @ d.t() + 9 * torch.eye(6))
    z = d.sum(0)[i]
    return y, z, y.t(), deep(w, x[0]), x.view(4, 9)

text, _ = graph_text(program, x, w, torch.tensor([1, 5]))

def compile_only():
    before = _magneto.kernel_cache_info()["plans_loaded"]
    _magneto.Graph(text)
    return _magneto.kernel_cache_info()["plans_loaded"] - before

def load_only():
    # Refused files are not compiled anew, which takes most of the time.
    os.environ["MAGNETO_STOP"] = "stored"
    before = _magneto.kernel_cache_info()["plans_loaded"]
    try:
        _magneto.Graph(text)
    except RuntimeError as e:
        assert "stopped after stored" in str(e), e
    del os.environ["MAGNETO_STOP"]
    return _magneto.kernel_cache_info()["plans_loaded"] - before and compile_only()

assert compile_only() == 0 and compile_only() == 1
(plan,) = files("plan")
key = open(os.path.join(folder, "key"), "rb").read()
good = open(plan, "rb").read()
HEAD = 32
draw = random.Random(7)
taken = tried = 0

def attempt(body):
    # A file with a right digest: only the checks of its numbers stand between it and the compiler.
    global taken, tried
    head = good[:24] + len(body).to_bytes(8, "little")
    with open(plan, "wb") as f:
        f.write(head + hashlib.blake2b(head + body, digest_size=32, key=key).digest() + body)
    tried += 1
    loaded = load_only()
    taken += loaded
    return loaded

body = good[64:]
assert attempt(body) == 1
for n in (0, 8, 64, len(body) - 8, len(body) - 1):  # whole tables are missing
    assert attempt(body[:n]) == 0, n
assert attempt(body + bytes(8)) == 0
for value in (0xFFFFFFFF, 0x7FFFFFFF, 0x80000000):  # in place of each word
    for at in range(0, len(body) - 3, 4):
        attempt(body[:at] + value.to_bytes(4, "little") + body[at + 4:])
for _ in range(int(os.environ.get("MAGNETO_EXAMPLES", "600"))):  # anything anywhere
    spoiled = bytearray(body)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(body))
        spoiled[at] = draw.choice([0, 1, 2, 0x7F, 0x80, 0xFF, draw.randrange(256)])
    attempt(bytes(spoiled))
print(tried, taken)
assert taken < tried * 0.9
assert attempt(body) == 1 or compile_only() == 1
"""
)


def run(code, folder, *args, make=True, **env):
    if make:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.chmod(folder, 0o700)
    env = {**os.environ, "MAGNETO_STRICT": "1", "MAGNETO_CACHE": "1", "MAGNETO_CACHE_DIR": str(folder), **env}
    done = subprocess.run(
        [sys.executable, "-c", code, *args], env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_files_that_others_could_have_written_are_not_read(tmp_path):
    run(FILES, tmp_path / "cache")


def test_damaged_files_are_misses(tmp_path):
    run(DAMAGE, tmp_path / "cache")


def test_the_key_is_only_this_users(tmp_path):
    folder = tmp_path / "cache"
    run(START + "assert run() == (0, 1)", folder)
    for spoil in ("none", "readable", "short", "link", "fifo", "gone"):
        run(KEY, folder, spoil)


def test_killed_writers(tmp_path):
    run(WRITERS, tmp_path / "cache")


def test_the_folder_is_held_by_its_descriptor(tmp_path):
    run(DESCRIPTOR, tmp_path / "cache")


def test_numbers_in_stored_plans_are_checked(tmp_path):
    run(FUZZ, tmp_path / "cache")


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_that_others_may_write_is_off(tmp_path, mode):
    os.chmod(tmp_path, mode)
    assert "other users may write it" in run(OFF, tmp_path, make=False) and not os.listdir(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_of_another_user_is_off(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    assert "another user" in run(OFF, folder, make=False)


def test_a_place_that_is_no_folder_is_off(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be opened" in run(OFF, tmp_path / "file", make=False)
    assert "cannot be opened" in run(OFF, tmp_path / "file" / "below", make=False)


def test_no_place_at_all_is_off(tmp_path):
    code = OFF.replace('os.environ["MAGNETO_CACHE_DIR"]', '"."')
    assert "name no folder" in run(code, "", make=False, HOME="", XDG_CACHE_HOME="")


def test_switched_off_is_silent(tmp_path):
    code = (
        START + "assert run() == (0, 0) and not seen and 'MAGNETO_CACHE' in _magneto.disk_cache_info()['off']"
    )
    run(code, tmp_path / "cache", MAGNETO_CACHE="0")
    assert not os.listdir(tmp_path / "cache")
