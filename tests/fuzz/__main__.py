"""Random programs against eager for a given time:  make fuzz SECONDS=600 SEED=1

A worker process checks programs one after the other.  When it dies or hangs, the program that it had begun is the failure.
Failures are made smaller and saved, each as one file that runs by itself.  The last lines say how many programs ran.
"""

import argparse
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "property")]  # what the kinds share with the tests
PATIENCE = 120  # seconds without a word from a worker


def options():
    p = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    p.add_argument("--seconds", type=float, default=120)
    p.add_argument("--seed", type=int, default=None, help="of the first program (default: the time)")
    p.add_argument("--kinds", default="models,models,models,templates,statements")
    p.add_argument("--out", type=pathlib.Path, default=HERE.parents[1] / "build" / "fuzz")
    p.add_argument("--one", nargs=2, metavar=("KIND", "SEED"), help="check, shrink and print one program")
    p.add_argument("--work", nargs=2, metavar=("KIND", "SEED"), help=argparse.SUPPRESS)
    return p.parse_args()


def say(**what):
    print(json.dumps(what), flush=True)


def work(kind, seed):
    """The worker: seeds from `seed` on, until it is ended or has checked a hundred."""
    import faulthandler

    import torch

    import kinds

    faulthandler.enable()
    torch.set_num_threads(1 + seed % 2)
    k = kinds.all_kinds()[kind]
    for s in range(seed, seed + 50):
        say(begin=s)
        program = k.make(s)
        found = k.failure(program)
        if found:
            say(shrink=s)
            small = k.shrink(program, lambda p: (k.failure(p) or (None,))[0], 60)
            found = k.failure(small) or found
            say(fail=s, kind=found[0], message=found[1][:2000], text=k.text(small, f"{kind} {s}: {found[1]}"))
        else:
            say(ok=s)


class Driver:
    def __init__(self, o):
        self.o, self.counts, self.failures = o, {}, []
        self.end = time.monotonic() + o.seconds

    def save(self, kind, seed, what, text):
        self.o.out.mkdir(parents=True, exist_ok=True)
        path = self.o.out / f"{kind}_{seed}.py"
        path.write_text(text)
        self.failures.append((kind, seed, what, path))
        print(
            f"FAILED: {kind} {seed}: {what[:400]}\n  saved as {path}\n  again: make fuzz ONE='{kind} {seed}'",
            flush=True,
        )

    def run(self):
        seed = self.o.seed if self.o.seed is not None else int(time.time()) % 10**8 * 100
        print(
            f"fuzz: seed {seed}, {self.o.seconds:.0f} s; the same programs again: make fuzz SEED={seed}",
            flush=True,
        )
        every = self.o.kinds.split(",")
        turn = 0
        while time.monotonic() < self.end:
            kind = every[turn % len(every)]
            self.batch(kind, seed + turn * 50)
            turn += 1
        total = sum(self.counts.values())
        print(
            f"fuzz: {total} programs ({', '.join(f'{n} {k}' for k, n in self.counts.items())}), {len(self.failures)} failures",
            flush=True,
        )
        return bool(self.failures)

    def batch(self, kind, seed):
        """One worker and its programs."""
        log = open(os.path.join("/tmp", f"magneto-fuzz-{os.getpid()}.err"), "w+")
        worker = subprocess.Popen(
            [sys.executable, str(HERE), "--work", kind, str(seed)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            bufsize=1,
        )
        current, hung = seed, False
        try:
            while time.monotonic() < self.end:
                if not select.select([worker.stdout], [], [], PATIENCE)[0]:
                    hung = True
                    break
                line = worker.stdout.readline()
                if not line:
                    break
                if line[0] != "{":
                    continue
                told = json.loads(line)
                current = told.get("begin", current)
                if "ok" in told or "fail" in told:
                    self.counts[kind] = self.counts.get(kind, 0) + 1
                if "fail" in told:
                    self.save(kind, told["fail"], told["message"], told["text"])
        finally:
            late = worker.poll() is None and not hung and time.monotonic() >= self.end
            if hung or late:
                worker.kill()
            code = worker.wait()
        log.seek(0)
        tail = re.sub(r"Extension modules.*", "", log.read())[-3000:]
        log.close()
        os.unlink(log.name)
        if not late and (hung or code):
            what = "hangs" if hung else f"ends with code {code}"
            self.save(kind, current, f"{what}: {tail}", self.crashed(kind, current, what, tail))

    def crashed(self, kind, seed, what, tail):
        import kinds

        k = kinds.all_kinds()[kind]
        return k.text(k.make(seed), f"{kind} {seed} {what}\n{tail}".replace('"""', "'''"))


def main():
    o = options()
    if o.work:
        return work(o.work[0], int(o.work[1]))
    if o.one:
        import kinds

        k = kinds.all_kinds()[o.one[0]]
        program = k.make(int(o.one[1]))
        print(k.text(program, ""))
        found = k.failure(program)
        if found:
            small = k.shrink(program, lambda p: (k.failure(p) or (None,))[0], 60)
            print(k.text(small, (k.failure(small) or found)[1]))
        return bool(found)
    return Driver(o).run()


if __name__ == "__main__":
    sys.exit(main())
