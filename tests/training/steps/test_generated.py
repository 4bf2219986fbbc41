"""Random training programs leave behind what eager leaves: results, gradients (None or zeros), hooks' arguments, errors, states."""

import linecache
import os

import pytest

import generated
import magneto
from magneto import _magneto
from programs import compare, outcome
from support import counts

SEEDS = int(os.environ.get("MAGNETO_EXAMPLES", "200"))


def load(seed):
    text = generated.make(seed)
    name = f"<training program {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {"__name__": "random_training"}
    exec(compile(text, name, "exec"), space)
    return text, space["program"]


def check(seed):
    text, program = load(seed)
    want = outcome(program, lambda f: f)
    _magneto.reset()
    try:
        compare(outcome(program, magneto.compile), want, f"seed {seed}", rtol=1e-5, atol=1e-6)
    except Exception:
        print(text)
        raise
    assert not counts().fallbacks, text


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_random_training_programs(first):
    for seed in range(first, min(first + 10, SEEDS)):
        check(seed)
