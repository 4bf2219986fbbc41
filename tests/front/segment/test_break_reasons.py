"""Each kind of graph break says what the program should change: rows of breaks.def, and one program for each of many kinds."""

import contextlib
import copy
import functools
import pathlib
import re
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import magneto
from magneto import _magneto

ROOT = pathlib.Path(__file__).resolve().parents[3]
X = torch.arange(6.0)


def uses():
    """How often the sources name each kind."""
    found = {}
    for path in (ROOT / "src").rglob("*.[ch]"):
        for name in re.findall(r"\bBK_([a-z]\w*)", path.read_text()):
            found[name] = found.get(name, 0) + 1
    return found


def test_each_kind_is_used_and_each_has_a_hint():
    hints = dict(_magneto.break_hints)
    assert not hints.pop("none")
    assert set(hints) <= set(uses()), set(hints) - set(uses())
    assert [name for name, hint in hints.items() if not hint] == []


def test_hints_are_short():
    assert [hint for hint in _magneto.break_hints.values() if len(hint.split()) > 25] == []


def test_few_places_know_nothing_more_than_the_operation():
    assert uses()["op"] <= 10


# ---- programs ----

PROGRAMS = []


def breaks(kind, *args):
    """Collects a program that has to break by this kind, with what it is called with."""

    def add(f):
        PROGRAMS.append(pytest.param(kind, f, args, id=f.__name__))
        return f

    return add


@breaks("data_dependent", X)
def a_value_decides(x):
    y = x + 1
    return y * 2 if y.sum() > 0 else y


@breaks("tensor_memory", X)
def an_address(x):
    return (x + 1).data_ptr() != 0


@breaks("memory_overlap", X)
def random_numbers_into_gaps(x):
    y = x + 1
    y[::2].normal_()
    return y


@breaks("view_outside", X[2:4])
def a_view_beyond_its_base(x):
    y = x + 1
    return y, x.as_strided((4,), (1,), 0) + 1


@breaks("batch_norm_statistics", torch.ones(2, 3), torch.zeros(3))
def one_tensor_for_both_statistics(x, statistics):
    return F.batch_norm(x + 1, statistics, statistics, training=True)


LIBRARY = torch.library.Library("break_reasons", "DEF")
LIBRARY.define("without_fake(Tensor x) -> Tensor")
LIBRARY.impl("without_fake", lambda x: x.clone(), "CPU")


@breaks("no_shape_rule", torch.ones(1))
def an_operator_without_a_fake(x):
    return torch.ops.break_reasons.without_fake((x + 1).expand(1 << 25))


@breaks("gradient_outside", X, X.clone().requires_grad_() * 2)
def the_gradient_graph_of_an_input(x, tracked):
    y = x + 1
    return y, tracked.grad_fn


@breaks("memory_change", X)
def a_resized_tensor(x):
    return (x + 1).resize_(2)


@breaks("out_argument", torch.ones(2, 2))
def an_out_that_torch_does_not_write(x):
    out = torch.zeros((), dtype=torch.int64)
    return torch.linalg.matrix_rank(x + 1, out=out)


@breaks("outside_shape", X.view(2, 3).clone())
def an_outer_tensor_is_transposed(x):
    y = x + 1
    return y, x.t_()


@breaks("deepcopy", X)
def a_copy_with_attributes(x):
    y = x + 1
    y.mark = 1
    return copy.deepcopy(y)


@breaks("layout_op", X)
def a_sparse_tensor(x):
    return (x + 1).to_sparse()


@breaks("tensor_kind", X, X.to_sparse())
def a_sparse_input(x, s):
    y = x + 1
    return y, s + s


@breaks("conj_bit", X, torch.ones(2, dtype=torch.complex64).conj())
def a_conjugated_input(x, c):
    y = x + 1
    return y, c + 1


@breaks("requires_grad", X.clone())
def a_result_forgets_its_gradient(x):
    y = (x + 1).requires_grad_()
    y.requires_grad_(False)
    return y * 2


@breaks("hook_inside", X.clone().requires_grad_())
def a_hook_on_a_value(x):
    y = x + 1
    y.register_hook(lambda g: g.clamp(0, 1))
    return y * 2


@breaks("hook_written", X, X.clone().requires_grad_())
def a_hook_on_a_written_tensor(x, p):
    y = x + 1
    p.register_hook(lambda g: g * 2)
    with torch.no_grad():
        p.add_(1)
    return y


@breaks("checkpoint", X.clone().requires_grad_(), [])
def a_checkpoint_with_an_effect(x, seen):
    def block(t):
        seen.append(1)
        return t.sin()

    return checkpoint(block, x + 1, use_reentrant=False)


def branch(x, f):
    y = x + 1
    return torch.cond(y.sum() > 0, f, lambda t: t + 1, (y,))


@breaks("branch_random", X)
def a_branch_draws(x):
    return branch(x, lambda t: t + torch.rand(6))


@breaks("branch_effect", X)
def a_branch_reads_a_number(x):
    return branch(x, lambda t: t + float(t.sum()))


@breaks("branch_results", X)
def branches_of_two_shapes(x):
    return branch(x, lambda t: t[:3] + 1)


@breaks("torch_state", X)
def a_mode_stays_entered(x):
    y = x + 1
    mode = torch.inference_mode()
    return y, mode.__enter__()


@breaks("older_object", X, memoryview(b"abc"))
def memory_of_an_older_object(x, m):
    y = x + 1
    return y * m[0]


@breaks("iterator", X, iter({1: 2}.items()))
def an_older_iterator(x, it):
    y = x + 1
    next(it)
    return y * 2


@breaks("generator", X, (i for i in range(3)))
def an_older_generator(x, g):
    y = x + 1
    return y * next(g)


@breaks("weak_reference", X)
def a_weak_reference_with_a_callback(x):
    y = x + 1
    r = weakref.ref(an_address, print)
    return y, r


class Plain:
    pass


class Ends:
    def __del__(self):
        pass


@breaks("finalizer", X)
def an_object_whose_end_runs_code(x):
    y = x + 1
    Ends()
    return y * 2


@functools.lru_cache
def cached(x):
    return 1


@breaks("cached_function", X)
def a_cache_keeps_what_is_made(x):
    y = x + 1
    return y * cached(Plain())


@breaks("numpy", np.arange(6.0))
def an_attribute_of_an_array_is_set(a):
    b = a + 1
    b.shape = (2, 3)
    return b


@breaks("callback", X)
def c_code_calls_a_function(x):
    y = x + 1
    return y, list(filter(print, [1]))


@breaks("identity", X)
def the_number_of_an_object(x):
    y = x + 1
    o = [1]
    return y, o, id(o) > 0, {id(o): 1}


@breaks("older_exception", X, ValueError("x"))
def an_older_exception(x, e):
    y = x + 1
    try:
        raise e
    except ValueError:
        return y * 2


@breaks("import", X)
def a_module_is_loaded(x):
    y = x + 1
    with contextlib.suppress(ImportError):
        import this_module_does_not_exist  # noqa: F401
    return y * 2


@breaks("user", X)
def asked_for(x):
    y = x + 1
    magneto.graph_break()
    return y * 2


@pytest.mark.parametrize("kind, f, args", PROGRAMS)
def test_programs_break_by_the_kind_whose_hint_helps(kind, f, args):
    reasons = magneto.explain(f)(*args).break_reasons
    assert kind in [r.kind for r in reasons], reasons
    assert all(r.hint == _magneto.break_hints[r.kind] for r in reasons)
