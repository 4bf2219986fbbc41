"""A call whose result nobody reads raises as eager's does: what may raise because of values is checked, whatever becomes of the result.

Each case calls an operator with values that it takes and with values for which eager raises; the programs around the call differ in
what they do with its result."""

import pathlib
import re

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import magneto


def ints(*values):
    return torch.tensor(values)


V = torch.arange(12.0).reshape(4, 3) / 12
IN, OUT, LOW = ints(0, 3, 1), ints(0, 4, 1), ints(0, -5, 1)
ALONG, ALONG_OUT = ints(0, 1, 2).reshape(1, 3), ints(0, 4, 2).reshape(1, 3)
ROWS = torch.ones(3, 3)
NO_CHOLESKY = torch.__version__ >= "2.15"  # torch.cholesky only raises; torch.linalg has its successor
REGULAR = torch.eye(3) * 2 + 0.1
SINGULAR = torch.zeros(3, 3)
NAN = torch.full((3, 3), float("nan"))
ZERO_AMONG, NONE_ZERO = ints(1, 0, 3), ints(1, 2, 3)
CLASSES, NO_CLASS = ints(0, 1, 2, -100), ints(0, 1, 3, 0)


def put_into_copy(v, i):
    c = v.clone()
    c[i] = 1.0
    return c


def accumulate(v, i):
    return v.clone().index_put_((i,), torch.ones(3, 3), accumulate=True)


def overwritten(v, i):
    c = v.clone()
    c[i] = 1.0
    c.zero_()
    return c


def sort_with(s, x, sorter):
    return torch.searchsorted(s, x, sorter=sorter)


def unpool(x, i):
    return F.max_unpool2d(x.reshape(1, 1, 2, 2), i.reshape(1, 1, 2, 2), 2)


def unpool3(x, i):
    return F.max_unpool3d(x.reshape(1, 1, 1, 2, 2), i.reshape(1, 1, 1, 2, 2), (1, 2, 2))


def ctc(x, targets, lengths):
    return F.ctc_loss(x.log_softmax(-1).reshape(4, 1, 3), targets, lengths, ints(2))


# name: (function, arguments that it takes, arguments for which it raises)
CASES = {
    "index": (lambda v, i: v[i], (V, IN), (V, OUT)),
    "index_negative": (lambda v, i: v[i], (V, IN), (V, LOW)),
    "index_int32": (lambda v, i: v[i], (V, IN.int()), (V, OUT.int())),
    "index_two": (lambda v, i, j: v[i, j], (V, IN, ints(0, 1, 2)), (V, IN, ints(0, 1, 3))),
    "index_second": (lambda v, j: v[:, j], (V, ints(0, 2)), (V, ints(0, 3))),
    "index_computed": (lambda v, i: (v * 2)[i + 1].exp().sum(), (V, ints(0, 2)), (V, ints(0, 3))),
    "index_of_index": (lambda v, i, j: v[i[j]], (V, IN, ints(0, 1)), (V, IN, ints(0, 3))),
    "index_put": (put_into_copy, (V, IN), (V, OUT)),
    "index_put_overwritten": (overwritten, (V, IN), (V, OUT)),
    "index_put_accumulate": (accumulate, (V, IN), (V, OUT)),
    "index_put_mask": (
        lambda v, m, s: v.index_put((m,), s),
        (V, V > 0.8, ints(1.0, 2.0)),
        (V, V > 0.1, ints(1.0, 2.0)),
    ),
    "embedding": (lambda w, i: F.embedding(i, w), (V, IN), (V, OUT)),
    "embedding_negative": (lambda w, i: F.embedding(i, w), (V, IN), (V, ints(0, -1))),
    "embedding_bag": (lambda w, i: F.embedding_bag(i.reshape(1, -1), w), (V, IN), (V, OUT)),
    "gather": (lambda v, i: v.gather(0, i), (V, ALONG), (V, ALONG_OUT)),
    "gather_negative": (lambda v, i: v.gather(0, i), (V, ALONG), (V, -ALONG_OUT)),
    "take": (lambda v, i: v.take(i), (V, ints(0, 11)), (V, ints(0, 12))),
    "take_negative": (lambda v, i: v.take(i), (V, ints(0, -12)), (V, ints(0, -13))),
    "index_select": (lambda v, i: v.index_select(0, i), (V, IN), (V, OUT)),
    "index_select_negative": (lambda v, i: v.index_select(0, i), (V, IN), (V, ints(0, -1))),
    "index_select_one": (lambda v, i: v.sum().index_select(0, i), (V, ints(0)), (V, ints(1))),
    "index_add": (lambda v, i, s: v.index_add(0, i, s), (V, IN, ROWS), (V, OUT, ROWS)),
    "index_add_vector": (
        lambda v, i, s: v.index_add(0, i, s),
        (V[:, 0], IN, ROWS[0]),
        (V[:, 0], OUT, ROWS[0]),
    ),
    "index_copy": (lambda v, i, s: v.index_copy(0, i, s), (V, IN, ROWS), (V, OUT, ROWS)),
    "index_fill": (lambda v, i: v.index_fill(0, i, 1.5), (V, IN), (V, OUT)),
    "index_fill_negative": (lambda v, i: v.index_fill(0, i, 1.5), (V, ints(-4)), (V, ints(-5))),
    "index_fill_tensor": (
        lambda v, i, s: v.index_fill(0, i, s),
        (V, IN, torch.tensor(2.0)),
        (V, OUT, torch.tensor(2.0)),
    ),
    "index_reduce": (lambda v, i, s: v.index_reduce(0, i, s, "prod"), (V, IN, ROWS), (V, OUT, ROWS)),
    "put": (lambda v, i, s: v.put(i, s), (V, ints(0, 11), ints(1.0, 2.0)), (V, ints(0, 12), ints(1.0, 2.0))),
    "scatter": (lambda v, i, s: v.scatter(0, i, s), (V, ALONG, ROWS), (V, ALONG_OUT, ROWS)),
    "scatter_negative": (lambda v, i, s: v.scatter(0, i, s), (V, ALONG, ROWS), (V, -ALONG_OUT, ROWS)),
    "scatter_value": (lambda v, i: v.scatter(0, i, 2.0), (V, ALONG), (V, ALONG_OUT)),
    "scatter_add": (lambda v, i, s: v.scatter_add(0, i, s), (V, ALONG, ROWS), (V, ALONG_OUT, ROWS)),
    "scatter_reduce": (
        lambda v, i, s: v.scatter_reduce(0, i, s, "amax"),
        (V, ALONG, ROWS),
        (V, ALONG_OUT, ROWS),
    ),
    "scatter_multiply": (
        lambda v, i, s: v.detach().scatter(0, i, s.detach(), reduce="multiply"),
        (V, ALONG, ROWS),
        (V, ALONG_OUT, ROWS),
    ),
    "masked_scatter": (
        lambda v, m, s: v.masked_scatter(m, s),
        (V, V > 0.8, ints(1.0, 2.0)),
        (V, V > 0.1, ints(1.0, 2.0)),
    ),
    "nll_loss": (F.nll_loss, (V, CLASSES), (V, NO_CLASS)),
    "nll_loss_each": (lambda x, t: F.nll_loss(x, t, reduction="none"), (V, CLASSES), (V, ints(0, 1, -1, 0))),
    "nll_loss_ignore": (lambda x, t: F.nll_loss(x, t, ignore_index=7), (V, ints(0, 1, 2, 7)), (V, CLASSES)),
    "nll_loss2d": (
        lambda x, t: F.nll_loss(x.reshape(2, 3, 2, 1), t.reshape(2, 2, 1)),
        (V, CLASSES),
        (V, NO_CLASS),
    ),
    "cross_entropy": (F.cross_entropy, (V, CLASSES), (V, NO_CLASS)),
    "cross_entropy_weight": (
        lambda x, t, w: F.cross_entropy(x, t, w.detach()),
        (V, CLASSES, ints(1.0, 2.0, 3.0)),
        (V, NO_CLASS, ints(1.0, 2.0, 3.0)),
    ),
    "cross_entropy_smooth": (
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
        (V, CLASSES),
        (V, NO_CLASS),
    ),
    "multi_margin_loss": (F.multi_margin_loss, (V, ints(0, 1, 2, 0)), (V, NO_CLASS)),
    "multilabel_margin_loss": (
        F.multilabel_margin_loss,
        (V, torch.zeros(4, 3).long()),
        (V, torch.full((4, 3), 3)),
    ),
    "binary_cross_entropy": (F.binary_cross_entropy, (V, V), (V + 0.5, V)),
    "binary_cross_entropy_each": (
        lambda x, t: F.binary_cross_entropy(x, t, reduction="none"),
        (V, V),
        (V - 0.5, V),
    ),
    "binary_cross_entropy_nan": (F.binary_cross_entropy, (V[:3], V[:3]), (NAN, V[:3])),
    "one_hot": (lambda i: F.one_hot(i, 4), (IN,), (OUT,)),
    "one_hot_negative": (lambda i: F.one_hot(i, 4), (IN,), (ints(-1, 2),)),
    "cholesky": (torch.linalg.cholesky, (REGULAR,), (-REGULAR,)),
    **({} if NO_CHOLESKY else {"cholesky_old": (torch.cholesky, (REGULAR,), (-REGULAR,))}),
    "cholesky_inverse": (torch.cholesky_inverse, (REGULAR,), (SINGULAR,)),
    "inverse": (torch.inverse, (REGULAR,), (SINGULAR,)),
    "solve": (torch.linalg.solve, (REGULAR, REGULAR), (SINGULAR, REGULAR)),
    "lu_factor": (torch.linalg.lu_factor, (REGULAR,), (SINGULAR,)),
    "ldl_factor": (torch.linalg.ldl_factor, (REGULAR,), (SINGULAR,)),
    "lu_unpack": (torch.lu_unpack, (REGULAR, ints(1, 2, 3).int()), (REGULAR, ints(1, 2, 4).int())),
    "eigh": (torch.linalg.eigh, (REGULAR,), (NAN,)),
    "eig": (lambda a: torch.linalg.eig(a.detach()), (REGULAR,), (NAN,)),
    "svd": (torch.linalg.svd, (REGULAR,), (NAN,)),
    "svdvals": (torch.linalg.svdvals, (REGULAR,), (NAN,)),
    "pinv": (torch.linalg.pinv, (REGULAR,), (NAN,)),
    "multinomial": (lambda p: torch.multinomial(p, 2), (V[0] + 0.1,), (-V[0] - 1,)),
    "bernoulli": (torch.bernoulli, (V,), (V + 1.5,)),
    "poisson": (torch.poisson, (V,), (-V - 1,)),
    "normal": (lambda s: torch.normal(torch.zeros(4, 3), s), (V,), (-V - 1,)),
    "normal_around_number": (lambda s: torch.normal(1.0, s), (V,), (-V - 1,)),
    "floor_divide": (lambda a, b: a // b, (IN, NONE_ZERO), (IN, ZERO_AMONG)),
    "div_trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (IN, NONE_ZERO), (IN, ZERO_AMONG)),
    "div_floor_broadcast": (
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        (IN[:, None], NONE_ZERO),
        (IN[:, None], ZERO_AMONG),
    ),
    "remainder": (lambda a, b: a % b, (IN, NONE_ZERO), (IN, ZERO_AMONG)),
    "remainder_of_number": (lambda b: 7 % b, (NONE_ZERO,), (ZERO_AMONG,)),
    "fmod": (torch.fmod, (IN, NONE_ZERO), (IN, ZERO_AMONG)),
    "bincount": (lambda i: torch.bincount(i, minlength=4), (IN,), (ints(0, -1, 2),)),
    "histc": (lambda x: torch.histc(x, 4), (V,), (V / 0,)),
    "histogram": (lambda x: torch.histogram(x.detach(), 4)[0], (V,), (V / 0,)),
    "assert_async": (lambda x: torch._assert_async(x, "no"), (torch.tensor(True),), (torch.tensor(False),)),
    "repeat_interleave": (
        lambda x, r: x.repeat_interleave(r, 0, output_size=6),
        (V, ints(1, 2, 1, 2)),
        (V, ints(-1, 3, 2, 2)),
    ),
    "max_unpool2d": (unpool, (V.reshape(-1)[:4], ints(0, 3, 5, 7)), (V.reshape(-1)[:4], ints(0, 3, 5, 16))),
    "max_unpool3d": (unpool3, (V.reshape(-1)[:4], ints(0, 3, 5, 7)), (V.reshape(-1)[:4], ints(0, 3, 5, 16))),
    "ctc_loss": (ctc, (V + 1, ints(1, 2).reshape(1, 2), ints(4)), (V + 1, ints(1, 2).reshape(1, 2), ints(5))),
    "fake_quantize": (
        lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s.detach(), z, 1, 0, 15),
        (V, ints(0.1, 0.1, 0.1), ints(0, 0, 0).int()),
        (V, ints(0.1, 0.1, 0.1), ints(99, 0, 0).int()),
    ),
    "segment_reduce": (
        lambda x, n: torch.segment_reduce(x, "sum", lengths=n),
        (V, ints(2, 2)),
        (V, ints(2, 3)),
    ),
    "quantile": (torch.quantile, (V, torch.tensor(0.5)), (V, torch.tensor(1.5))),
    "searchsorted": (
        sort_with,
        (ints(1.0, 2.0, 3.0), V, ints(0, 2, 1)),
        (ints(1.0, 2.0, 3.0), V, ints(0, 1, 3)),
    ),
}


def unused(call, x, *args):
    call(*args)
    return x.sin() + 1


def alone(call, x, *args):
    call(*args)
    return 3


def behind_a_write(call, x, *args):
    y = x.detach()
    y.add_(1)
    call(*args)
    return y * 2


def in_a_step(call, x, *args):
    y = x.sin().sum()
    call(*args)
    return torch.autograd.grad(y, x)[0] if y.requires_grad else y


def used(call, x, *args):
    return x + 1, call(*args)


def used_behind_a_write(call, x, *args):
    y = x.detach()
    y.add_(1)
    return y, call(*args)


PROGRAMS = {
    False: [unused, alone, behind_a_write, used, used_behind_a_write],
    True: [unused, in_a_step, used],
}


def outcome(f, x, args, grad):
    """What f gives: its class of error, or its result."""
    x = x.clone().requires_grad_(grad)
    own = [t.clone().requires_grad_(grad and t.is_floating_point()) for t in args]
    torch.manual_seed(1)
    try:
        return f(x, *own)
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("name", CASES)
def test_errors_are_eagers(name, grad):
    call, good, bad = CASES[name]
    for program in PROGRAMS[grad]:

        def eager(x, *args):
            return program(call, x, *args)

        magneto.reset()
        compiled = magneto.compile(eager)
        for args in (good, bad, bad, good):
            want = outcome(eager, torch.ones(2), args, grad)
            got = outcome(compiled, torch.ones(2), args, grad)
            assert isinstance(want, type) == (args is bad), f"{name}: the case itself is wrong: {want}"
            if isinstance(want, type):
                assert got is want, f"{program.__name__}: {got}"
            else:
                torch.testing.assert_close(got, want, msg=program.__name__)


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        self.seen |= {name, name.removesuffix("_"), f"{name}.{func._schema.overload_name}"}
        return func(*args, **(kwargs or {}))


def test_every_row_of_the_table_has_a_case():
    text = (pathlib.Path(__file__).parents[3] / "src/ir/graph/raises.def").read_text()
    rows = set(re.findall(r'RAISES\("([^"]+)"', text)) - {"binomial", "_index_put_impl", "index_put"}
    names = Names()
    for call, good, _ in CASES.values():
        for grad in (False, True):
            with names:
                outcome(lambda x, *args: call(*args), torch.ones(2), good, grad)
    assert rows - names.seen == ({"cholesky"} if NO_CHOLESKY else set())
