"""The kinds of random programs.  Each can make one from a seed, check it, make it smaller, and write it down."""

import random

import cache_files
import judge
import lines
import random_graphs
import random_kernels
import random_models
import shrink

MAIN = """
if __name__ == "__main__":
    import magneto

    torch.manual_seed(3)
    eager = Net().train(TRAIN)
    torch.manual_seed(3)
    compiled = magneto.compile(Net().train(TRAIN), dynamic=DYNAMIC)
    for k, call in enumerate([*CALLS, *CALLS]):
        for name, f in (("eager", eager), ("magneto", compiled)):
            args = make(**call, seed=k % len(CALLS))
            torch.manual_seed(7)
            try:
                with getattr(torch, MODE)():
                    out = f(*args)
                for t in out:
                    if t.requires_grad:
                        t.sum().backward(retain_graph=True)
                grads = [a.grad for a in args[:-1] if a.is_leaf]
                print(name, [(t, t.stride()) for t in out], "inputs", args, "gradients", grads)
            except Exception as e:
                print(name, type(e).__name__, e)
"""


class Models:
    name = "models"

    def make(self, seed):
        return random_models.program(seed)

    def failure(self, program):
        """What is wrong with it: a kind and a text, or None."""
        try:
            judge.check(program)
        except judge.Difference as e:
            return None if judge.known(e) else (e.kind, str(e))
        except judge.NotAProgram:
            return None
        return None

    def shrink(self, program, fails, seconds):
        return shrink.shrink(program, fails, seconds)

    def text(self, program, message):
        return f'"""{message}"""\n\n{program.text()}{MAIN}'


class Checked:
    """Programs of a module that has make, check, smaller and text."""

    def __init__(self, name, module):
        self.name, self.module = name, module
        self.make, self.text = module.make, module.text

    def failure(self, program):
        try:
            self.module.check(program)
        except judge.Difference as e:
            if e.kind == "value" and "f16" in getattr(program, "text", ""):
                return None  # of 16 bits, which no option rounds here as eager does
            return None if judge.known(e) else (e.kind, str(e))
        except judge.NotAProgram:
            return None
        return None

    def shrink(self, program, fails, seconds):
        return shrink.shrink(program, fails, seconds, self.module.smaller)


class Lines:
    """Programs as text; `module` has check(text, breaks, inner), which raises."""

    def __init__(self, name, write, check, prelude):
        self.name, self.write, self.check, self.prelude = name, write, check, prelude

    def make(self, seed):
        r = random.Random(seed)
        breaks = r.choice([(0, False), (0, False), (1, False), (2, False), (3, False), (9, True), (27, True)])
        return self.write(r), breaks

    def failure(self, program):
        text, breaks = program
        try:
            self.check(text, *breaks)
        except SyntaxError:
            return None
        except BaseException as e:
            if isinstance(e, (KeyboardInterrupt, SystemExit, MemoryError)):
                raise
            return type(e).__name__, f"{type(e).__name__}: {str(e)[:3000]}"
        return None

    def shrink(self, program, fails, seconds):
        text, breaks = program
        head, body = text[: len(self.prelude)], text[len(self.prelude) :]
        body = shrink.shrink(body, lambda b: fails((head + b, breaks)), seconds, lines.smaller_valid)
        for simpler in ((0, False), (1, False)):
            if breaks != simpler and fails((head + body, simpler)) == fails((head + body, breaks)):
                breaks = simpler
                break
        return head + body, breaks

    def text(self, program, message):
        return f'{program[0]}\nBREAKS = {program[1]}\n"""{message}"""\n'


def python_kinds():
    import generator
    import templates
    import test_programs_random as old
    import test_programs_templates as new

    def old_text(r):
        return generator.program(lambda k: r.randrange(k))

    def new_text(r):
        budget = r.choice([4, 9, 14, 20])
        return templates.program(lambda k: r.randrange(k), budget)

    return [
        Lines("statements", old_text, old.check, generator.PRELUDE),
        Lines("templates", new_text, new.check, templates.PRELUDE),
    ]


def all_kinds():
    return {
        k.name: k
        for k in [
            Models(),
            Checked("graphs", random_graphs),
            Checked("kernels", random_kernels),
            Checked("cache", cache_files),
            *python_kinds(),
        ]
    }
