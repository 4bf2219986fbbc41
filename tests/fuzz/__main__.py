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
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "property")]  # what the kinds share with the tests
PATIENCE = 120  # seconds without a word from a worker
BATCH, SLICE = 50, 15  # programs of one worker, and seconds after which it begins no other


def options():
    p = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    p.add_argument("--seconds", type=float, default=120)
    p.add_argument("--seed", type=int, default=None, help="of the first program (default: the time)")
    p.add_argument(
        "--device", default=os.environ.get("FUZZ_DEVICE", "cpu"), help="cpu, or cuda: random models only"
    )
    p.add_argument(
        "--shrink", type=float, default=os.environ.get("FUZZ_SHRINK", 60), help="seconds a failure"
    )
    p.add_argument("--kinds", default="models,graphs,cache,models,templates,kernels,graphs,models,statements")
    p.add_argument("--out", type=pathlib.Path, default=HERE.parents[1] / "build" / "fuzz")
    p.add_argument("--fail-on", choices=["all", "crashes"], default="all", help="what makes the run fail")
    p.add_argument("--keep", action="store_true", help="add the run to the table of docs/contributing.md")
    p.add_argument("--one", nargs=2, metavar=("KIND", "SEED"), help="check, shrink and print one program")
    p.add_argument("--work", nargs=2, metavar=("KIND", "SEED"), help=argparse.SUPPRESS)
    p.add_argument("--apart", nargs=2, metavar=("KIND", "SEED"), help=argparse.SUPPRESS)
    return p.parse_args()


def starves(pid, before, most=PATIENCE):
    """Is the process ready to run, but got little time of the processor, on a busy machine?  Also its seconds so far."""
    with open(f"/proc/{pid}/stat") as f:
        state, *rest = f.read().rpartition(") ")[2].split()
    used = sum(map(int, rest[10:12])) / os.sysconf("SC_CLK_TCK")
    return state in "RD" and used - before < most / 2, used


def say(**what):
    print(json.dumps(what), flush=True)


def work(kind, seed, seconds):
    """The worker: seeds from `seed` on."""
    import faulthandler

    import torch

    import kinds

    faulthandler.enable()
    torch.set_num_threads(1 + seed % 2)
    k = kinds.all_kinds()[kind]
    end = time.monotonic() + SLICE
    for s in range(seed, seed + BATCH):
        if time.monotonic() > end:
            break
        say(begin=s)
        program = k.make(s)
        found = k.failure(program)
        if found:
            say(shrink=s)
            small = k.shrink(program, lambda p: (k.failure(p) or (None,))[0], seconds)
            found = k.failure(small) or found
            say(fail=s, kind=found[0], message=found[1][:2000], text=k.text(small, f"{kind} {s}: {found[1]}"))
        else:
            say(ok=s)


def work_apart(kind, seed, seconds):
    """Makes a program smaller that ends or hangs its process: each try is a process."""
    import signal

    import torch

    import kinds

    torch.set_num_threads(1)  # no threads yet: a child has only the one that forked
    k = kinds.all_kinds()[kind]

    def fails(program):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            signal.setitimer(signal.ITIMER_PROF, 20)  # of its own time: the machine may be busy
            signal.alarm(PATIENCE)
            os.write(writer, (k.failure(program) or ("",))[0].encode())
            os._exit(0)
        os.close(writer)
        told = os.read(reader, 1000).decode()
        os.close(reader)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return told or (f"ends with code {code}" if code else None)

    program = k.make(seed)
    small = k.shrink(program, fails, seconds)
    what = fails(small) or "fails only in its batch"
    say(fail=seed, kind=what, message=what, text=k.text(small, f"{kind} {seed} {what}"))


class Driver:
    def __init__(self, o):
        self.o, self.counts, self.failures, self.crashes = o, {}, [], 0
        self.end = time.monotonic() + o.seconds

    def save(self, kind, seed, what, text, wrong="crash"):
        """wrong: a crash, an error that eager does not have, or what differs."""
        self.crashes += wrong == "crash" or wrong.startswith("error")
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
        every = self.o.kinds.split(",") if self.o.device == "cpu" else ["models"]
        turn = 0
        while time.monotonic() < self.end:
            kind = every[(seed // BATCH + turn) % len(every)]  # short runs begin with any of them
            self.batch(kind, seed + turn * BATCH)
            turn += 1
        total = sum(self.counts.values())
        print(
            f"fuzz: {total} programs ({', '.join(f'{n} {k}' for k, n in self.counts.items())}), {len(self.failures)} failures",
            flush=True,
        )
        if self.o.keep:
            import history

            history.keep(self.counts, len(self.failures), self.o.device)
        return bool(self.failures) if self.o.fail_on == "all" else bool(self.crashes)

    def batch(self, kind, seed):
        """One worker and its programs."""
        with tempfile.TemporaryDirectory(prefix="magneto-fuzz-") as folder:
            log = pathlib.Path(folder, "stderr")
            with open(log, "w") as stderr:
                worker = subprocess.Popen(
                    [sys.executable, str(HERE), "--work", kind, str(seed)],
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env={**os.environ, "TMPDIR": folder},
                )
            current, ended = self.follow(kind, seed, worker)
            if ended != "ends":
                worker.kill()
            code = worker.wait()
            tail = re.sub(r"Extension modules.*", "", log.read_text(errors="replace"))[-3000:]
        if ended == "hangs" or (ended == "ends" and code):
            what = "hangs" if ended == "hangs" else f"ends with code {code}"
            self.save(kind, current, f"{what}: {tail}", self.crashed(kind, current))

    def follow(self, kind, seed, worker):
        """Until it ends, hangs or is late: the seed of its last program, and which of these."""
        current, end, rest = seed, self.end, b""
        heard, used = time.monotonic(), 0.0
        while True:
            until = min(end, heard + PATIENCE)
            if not select.select([worker.stdout], [], [], max(until - time.monotonic(), 0))[0]:
                waits, _ = starves(worker.pid, used)
                if until < end and waits:
                    heard = time.monotonic()
                    continue
                return current, "is late" if until == end else "hangs"
            data = os.read(worker.stdout.fileno(), 1 << 16)
            if not data:
                return current, "ends"
            heard, (_, used) = time.monotonic(), starves(worker.pid, 0.0)
            *lines, rest = (rest + data).split(b"\n")
            for told in (json.loads(line) for line in lines if line.startswith(b"{")):
                current = told.get("begin", current)
                end = self.end + ("shrink" in told) * 2 * self.o.shrink  # what was found is told
                if "ok" in told or "fail" in told:
                    self.counts[kind] = self.counts.get(kind, 0) + 1
                if "fail" in told:
                    self.save(kind, told["fail"], told["message"], told["text"], told["kind"])

    def crashed(self, kind, seed):
        """The program, made smaller in processes of its own."""
        command = [sys.executable, str(HERE), "--apart", kind, str(seed)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=4 * self.o.shrink)
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            return json.loads(lines[-1])["text"]
        except (subprocess.TimeoutExpired, IndexError):
            return f"# cannot be made smaller: make fuzz ONE='{kind} {seed}'\n"


def main():
    o = options()
    os.environ["FUZZ_DEVICE"], os.environ["FUZZ_SHRINK"] = o.device, str(o.shrink)
    if o.work:
        return work(o.work[0], int(o.work[1]), o.shrink)
    if o.apart:
        return work_apart(o.apart[0], int(o.apart[1]), o.shrink)
    if o.one:
        import kinds

        k = kinds.all_kinds()[o.one[0]]
        program = k.make(int(o.one[1]))
        print(k.text(program, ""))
        found = k.failure(program)
        if found:
            small = k.shrink(program, lambda p: (k.failure(p) or (None,))[0], o.shrink)
            print(k.text(small, (k.failure(small) or found)[1]))
        return bool(found)
    return Driver(o).run()


if __name__ == "__main__":
    sys.exit(main())
