"""Hundreds of small programs, each a piece of the language: what Python gives, in one graph, and with a break anywhere."""

import pytest

import lang_annotations
import lang_exc
import lang_fun
import lang_gen
import lang_misc
import lang_more
import lang_opcodes
import lang_repro
from harness import check, forced_breaks
from lang_registry import PROGRAMS
from support import assert_counts

FILES = (lang_annotations, lang_exc, lang_fun, lang_gen, lang_misc, lang_more, lang_opcodes, lang_repro)
CASES = [pytest.param(*p[1:], id=f"{p[0][5:]}-{p[1].__name__}") for p in PROGRAMS]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("f, make, graphs, breaks", CASES)
def test_program(f, make, graphs, breaks):
    check(f, make, calls=2, eager_backend=True)
    assert_counts(graphs=graphs, breaks=None if graphs is None else breaks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("k, inner", [(1, False), (3, False), (14, True)])
@pytest.mark.parametrize("f, make, graphs, breaks", CASES)
def test_program_with_breaks(f, make, graphs, breaks, k, inner):
    with forced_breaks(k, inner):
        check(f, make, calls=2, eager_backend=True)
