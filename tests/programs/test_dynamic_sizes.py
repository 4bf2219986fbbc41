"""Sizes that differ from call to call: symbols from the second recording on, or from the first where the program asks for it."""

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F

import magneto
from magneto import _magneto
from support import assert_same, counts

SIZES = (3, 5, 8, 13, 4)


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()
    torch.manual_seed(0)


def same(want, got):
    assert_same(got, want, rtol=1e-4, atol=1e-5)


def recordings(f, calls, **options):
    g = magneto.compile(f, fullgraph=True, **options)
    with torch.no_grad():
        for args in calls:
            same(f(*args), g(*args))
    return counts().entries


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.out(y.transpose(1, 2).reshape(b, t, c))


W = torch.randn(4, 6)
LINEAR, NORM = torch.nn.Linear(4, 7), torch.nn.LayerNorm(4)
CONV, BATCH = torch.nn.Conv2d(4, 4, 1), torch.nn.BatchNorm2d(4).eval()


def parts_of(y):
    y[:, 0] += 1
    y[:, 1] = y[:, 2]
    y[1:, 3].copy_(y[1:, 0])
    y[:, :2] = y[:, 2:]
    y[1:] = y[1:] * 2
    return y


STEADY = {  # whatever the first dimension is: the first recording, and one with a symbol
    "pointwise": lambda x: x.sin() * 2 + 1,
    "reduction": lambda x: (x.sum(-1), x.mean(0), x.amax(), x.softmax(0)),
    "product": lambda x: (x @ W).relu() @ W.t(),
    "linear": lambda x: LINEAR(x),
    "norm": lambda x: NORM(x),
    "complex pairs": lambda x: torch.view_as_real(torch.view_as_complex(x.view(-1, 2, 2)) * 1j).flatten(1),
    "offset of pairs": lambda x: torch.view_as_complex(x[1:].reshape(-1, 2, 2)[1:])[..., 1].real * 2,
    "three dimensions": lambda x: LINEAR(x[:, None].expand(-1, 3, 4)),
    "view": lambda x: x.view(x.shape[0] * 2, -1) + 1,
    "reshape": lambda x: x.t().reshape(2, 2, -1) + x.numel(),
    "flatten": lambda x: x.flatten() * x.size(0),
    "slices": lambda x: (x[1:-1] * 2, x[: x.shape[0] // 2] + 1, x[-2:]),
    "cat": lambda x: torch.cat([x, x[:1]]).shape[0] + torch.cat([x, x], 1),
    "expand": lambda x: x[:, None].expand(x.shape[0], 3, 4) + x.new_zeros(3, 4),
    "arange": lambda x: x + torch.arange(x.shape[0])[:, None] + torch.zeros(x.size(0), 1),
    "pieces": lambda x: [p * 2 for p in x.chunk(2)] + list(x.split([1, x.shape[0] - 1])),
    "sizes": lambda x: (x.shape, x.shape[0] + 1, x.numel() // 2, x.size(), x * 2),
    "scalar": lambda x: x / x.shape[0] + x.shape[0] ** 0.5,
    "in place": lambda x: x.clone().add_(x).mul_(2),
    "parts of one memory": lambda x: parts_of(x.clone()),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "image": lambda x: BATCH(CONV(x[:, :, None, None].expand(-1, 4, 5, 5))).relu(),
    "pad": lambda x: F.pad(x, (0, 0, 1, 2)),
    "gather": lambda x: x.gather(0, torch.zeros(1, 4, dtype=torch.long)) + F.embedding(torch.arange(2), x),
    "rows by number": lambda x: (
        torch.zeros(3, 4).index_add(0, torch.arange(x.shape[0]) % 3, x),
        x.index_copy(1, torch.tensor([2, 0]), x[:, :2]),
    ),
    "indices": lambda x: (
        x[:, [-1]],
        x.t()[[0, 2]],
        x[:, None, [0, 1]],
        x[[1], :, None],
        x[None, :, torch.tensor([[0], [3]])],
    ),
    "columns": lambda x: (
        x[:, None].expand(-1, 3, 4).transpose(0, 2)[torch.arange(3), torch.arange(3).flip(0)]
    ),
    "two questions": lambda x: x + 1 if x.shape[0] > 2 and x.shape[0] < 100 else x - 1,
}


if torch.__version__ < "2.12":
    del STEADY[
        "three dimensions"
    ]  # the linear of these versions asks for the sizes themselves: a recording for each


@pytest.mark.parametrize("name", STEADY)
def test_two_recordings_do(name):
    assert recordings(STEADY[name], [(torch.randn(n, 4),) for n in SIZES]) == 2


@pytest.mark.parametrize("name", STEADY)
def test_one_recording_does_when_asked_for(name):
    assert recordings(STEADY[name], [(torch.randn(n, 4),) for n in (9, 6, 14, 21)], dynamic=True) == 1


@pytest.mark.parametrize("name", STEADY)
def test_sizes_are_constants_when_asked_for(name):
    assert recordings(STEADY[name], [(torch.randn(n, 4),) for n in SIZES], dynamic=False) == len(SIZES)


def test_other_default_dtypes():
    torch.set_default_dtype(torch.float64)
    try:
        calls = [(torch.randn(n, 4),) for n in SIZES]
        assert (
            recordings(
                lambda x: x * torch.ones(x.shape[0], 1) + torch.arange(4) / 2 + (torch.arange(4) > 1).float(),
                calls,
            )
            == 2
        )
    finally:
        torch.set_default_dtype(torch.float32)


def test_sequences_of_many_lengths():
    block = Attention()
    assert recordings(lambda x: block(block(x)), [(torch.randn(2, n, 8),) for n in (7, 4, 9, 16, 33, 4)]) == 2
    assert (
        recordings(lambda x: block(x), [(torch.randn(b, n, 8),) for b, n in ((2, 3), (3, 5), (5, 4), (7, 8))])
        <= 4
    )


def test_two_sizes_that_were_divided():
    f = lambda x: (F.max_pool2d(x, 2).flatten(1) * 2, x[..., ::2, 1::2].flatten(1) + 1)
    assert (
        recordings(
            f, [(torch.randn(3, 4, h, w),) for h, w in ((9, 12), (8, 10), (13, 6), (4, 4))], dynamic=True
        )
        == 1
    )


def test_zero_and_one_are_no_symbols():
    f = lambda x: (x + 1, x.sum(0), x.expand(max(x.shape[0], 1), 4) if x.shape[0] else x)
    assert recordings(f, [(torch.randn(n, 4),) for n in (3, 5, 1, 0, 9, 1, 0, 2)]) == 4


def test_answers_are_guarded():
    def f(x):
        if x.shape[0] % 2 == 0:
            return x + 1
        return x.sum() if x.shape[0] > 10 else x - 1

    assert recordings(f, [(torch.randn(n),) for n in (3, 5, 4, 13, 6, 7, 15, 100)]) == 4


def test_sizes_of_two_tensors_are_told_apart():
    f = lambda x, y: x * y.sum()
    assert recordings(f, [(torch.randn(n), torch.randn(m)) for n, m in ((3, 4), (5, 6), (7, 7), (8, 9))]) == 2
    magneto.reset()
    f = lambda x, y: x + y
    calls = [(torch.randn(n), torch.randn(m)) for n, m in ((3, 3), (5, 5), (7, 7), (8, 1), (9, 9))]
    assert recordings(f, calls) == 3


def test_sizes_that_do_not_go_together_are_an_error():
    g = magneto.compile(lambda x, y: x + y)
    for n in SIZES:
        g(torch.randn(n), torch.randn(n))
    with pytest.raises(RuntimeError, match="must match"):
        g(torch.randn(6), torch.randn(7))
    same(torch.ones(9) * 2, g(torch.ones(9), torch.ones(9)))


def test_strides_follow_the_sizes_or_are_guarded():
    f = lambda x: (x.contiguous().view(-1) * 2, x.t() + 1)
    g = magneto.compile(f)
    for n in SIZES:
        for x in (
            torch.randn(n, 4),
            torch.randn(4, n).t(),
            torch.randn(n, 9)[:, :4],
            torch.randn(2 * n, 4)[::2],
        ):
            same(f(x), g(x))
    assert counts().entries <= 8


GAPS = {  # views into tensors that grow: the strides differ, and do not follow from the sizes
    "a column": (lambda x: x * 2 + x.stride(0), lambda n: torch.randn(4, n)[:, 0:1]),
    "the last step": (
        lambda x: (x.softmax(-1), x.t(), x.reshape(-1), x.is_contiguous()),
        lambda n: torch.randn(3, n, 7)[:, -1],
    ),
    "a part": (lambda x: x.sin() @ x.mT, lambda n: torch.randn(3, n + 4, 7)[:, :n]),
    "every nth": (lambda x: x.cumsum(0) + x[1:3].sum(), lambda n: torch.randn(12 * n)[::n]),
    "a window": (
        lambda x: F.avg_pool2d(x, 2) + x[..., :4, :4],
        lambda n: torch.randn(1, 2, 8, 8 + n)[..., :8],
    ),
    "written to": (lambda x: x.mul_(2).sum(), lambda n: torch.randn(3, n, 7)[:, -1]),
}


@pytest.mark.parametrize("backend", ["magneto", "eager"])
@pytest.mark.parametrize("name", GAPS)
def test_strides_that_differ_are_symbols(name, backend):
    f, make = GAPS[name]
    g = magneto.compile(f, fullgraph=True, backend=backend)
    for n in (*SIZES, 1):  # 1: dense
        x = make(n)
        y = x._base.clone().as_strided(x.size(), x.stride(), x.storage_offset())
        same((f(x), x), (g(y), y))
        assert torch.equal(x._base, y._base)
    assert counts().entries <= 3


def test_numbers_of_sizes_may_differ_as_often_as_sizes():
    x = torch.randn(30, 30)
    g = magneto.compile(lambda x: [x + i for i in range(x.shape[0])][-1] + x.shape[1])
    for n in range(2, 20):
        same(x[:n] + (n - 1) + 30, g(x[:n]))
    stats = counts()
    assert stats.fallbacks == 0 and stats.entries > 8


def test_gradients_through_strides_that_differ():
    w = torch.randn(7, 7, requires_grad=True)
    f = lambda x: ((x @ w).relu() + x).sum()
    g = magneto.compile(f)
    for n in SIZES:
        base = torch.randn(3, n, 7, requires_grad=True)
        same(*(torch.autograd.grad(h(base[:, -1]), (base, w)) for h in (f, g)))
    assert counts().entries == 2


def test_strides_that_overlap_are_constants():
    f = lambda x: x * 2
    g = magneto.compile(f)
    for n in (3, 5, 4, 9, 11, 8, 5):
        x = torch.arange(40.0).as_strided((3, 8), (n, 1))
        same(f(x), g(x))


def test_ints_are_sizes():
    f = lambda n, x: (torch.zeros(n, 2) + n, x[:n], torch.arange(n), x.repeat(n).view(n, -1))
    x = torch.randn(20)
    assert recordings(f, [(n, x) for n in SIZES]) == 2


def test_lists_and_attributes():
    class Holder:
        pass

    h = Holder()
    g = magneto.compile(lambda l, h: l[0] * 2 + h.x)
    for n in SIZES:
        h.x = torch.randn(n)
        l = [torch.randn(n)]
        same(l[0] * 2 + h.x, g(l, h))
    assert counts().entries == 2


def test_marks():
    f = lambda x: x.sin() + x.shape[0]
    xs = [torch.randn(n, 4) for n in SIZES]
    torch._dynamo.mark_dynamic(xs[0], 0)
    assert recordings(f, [(x,) for x in xs]) == 1
    magneto.reset()
    xs = [torch.randn(n, 4) for n in SIZES]
    for x in xs:
        torch._dynamo.mark_static(x, 0)
    assert recordings(f, [(x,) for x in xs]) == len(SIZES)


def test_settings_of_dynamo():
    f = lambda x: x.sin() + x.shape[0]
    calls = [(torch.randn(n, 4),) for n in SIZES]
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        assert recordings(f, calls) == len(SIZES)
    magneto.reset()
    with torch._dynamo.config.patch(assume_static_by_default=False):
        assert recordings(f, calls) == 1


def test_another_kind_of_argument_is_no_other_size():
    g = magneto.compile(lambda x: x.shape[0] + 1 if isinstance(x, torch.Tensor) else x)
    for x in (
        torch.ones(3),
        torch.ones(5),
        None,
        7,
        torch.ones(8),
        [1],
        torch.ones(9, 2),
        "a",
        torch.ones(4, dtype=torch.int32),
    ):
        same(x.shape[0] + 1 if isinstance(x, torch.Tensor) else x, g(x))


def test_questions_that_sizes_have_no_answer_to():
    f = lambda x: x * torch.sym_sqrt(x.shape[0]) if x.shape[0] > 1 else x
    assert recordings(f, [(torch.randn(n, 4),) for n in SIZES]) == len(SIZES)


def test_many_assignments():
    g = magneto.compile(lambda x, y: torch.cat([x, y]) * 2)
    for n in range(2, 75):
        x = torch.randn(n)
        same(torch.cat([x, x]) * 2, g(x, x.clone()))
    assert counts().entries == 2


def test_what_needs_numbers_gets_them():
    f = lambda x: (
        f"{x.shape[0]:03d}",
        [0] * x.shape[0],
        sum(r for r in x),
        x.unbind(0)[-1],
        F.interpolate(x[None, None], scale_factor=2.0),
    )
    assert recordings(f, [(torch.randn(n, 4),) for n in SIZES]) == len(SIZES)


RECURRENT = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}


@pytest.mark.parametrize("mode, factor", [("nearest", 2.0), ("nearest-exact", 1.7), ("bilinear", 1.7)])
def test_interpolation_by_a_factor(mode, factor):
    f = lambda x: F.interpolate(x * 2, scale_factor=factor, mode=mode) + 1
    assert recordings(f, [(torch.randn(b, 3, 4, 5),) for b in (2, 3, 5, 4)]) == 2
    assert len(graphs(f, [(torch.randn(b, 3, 4, 5),) for b in (2, 3, 5, 4)])) <= 2


def test_what_no_kernel_does_with_symbols_breaks_no_graph():
    f = lambda x: F.interpolate(x * 2, scale_factor=2.0, mode="bicubic") + 1
    assert recordings(f, [(torch.randn(b, 3, 4, 5),) for b in (2, 3, 5)]) <= 3


def test_spectra_of_many_signals():
    f = lambda x: torch.stft(x, 16, window=torch.ones(16), return_complex=True).abs()
    assert recordings(f, [(torch.randn(b, 64),) for b in (2, 3, 5)]) == 2


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("train", [False, True])
def test_recurrent_networks_on_many_batches(name, train):
    net = RECURRENT[name](4, 8, num_layers=2, bidirectional=True, batch_first=True)
    f = lambda x: net(x)
    with torch.set_grad_enabled(train):
        assert recordings(f, [(torch.randn(b, 6, 4),) for b in (2, 3, 5, 4)]) == 2


@pytest.mark.parametrize("name", RECURRENT)
def test_dropout_between_recurrent_layers(name):
    net = RECURRENT[name](4, 8, num_layers=2, dropout=0.5)
    compiled = magneto.compile(net)
    for b in (2, 3, 5):
        x = torch.randn(6, b, 4)
        torch.manual_seed(b)
        want = net(x)
        torch.manual_seed(b)
        same(want, compiled(x))


def test_a_module_that_needs_numbers_is_not_every_module():
    class Rows(torch.nn.Module):
        def forward(self, x):
            return sum(r for r in x)

    rows, line = magneto.compile(Rows()), magneto.compile(torch.nn.Sequential(torch.nn.Linear(4, 4)))
    net = magneto.compile(torch.nn.LSTM(4, 8, num_layers=2, dropout=0.5))
    with torch.no_grad():
        for n in (2, 3, 4):
            rows(torch.randn(n, 4))
            net(torch.randn(6, n, 4))
        before = counts().entries
        for n in (2, 3, 4, 5, 6):
            line(torch.randn(n, 4))
    assert counts().entries - before <= 2


def test_graph_breaks():
    def f(x):
        y = x * x.shape[0]
        torch._dynamo.graph_break()
        return y.view(x.shape[0], -1).sum(-1), x.shape

    g = magneto.compile(f)
    for n in SIZES:
        x = torch.randn(n, 4)
        same(f(x), g(x))
    assert counts().entries == 4


def test_random_numbers_and_effects():
    def f(x, out):
        out.append(x.shape[0])
        out.append(F.dropout(x, 0.5))
        return x.mul_(2)

    g = magneto.compile(f)
    for n in SIZES:
        a, b, p, q = torch.ones(n, 4), torch.ones(n, 4), [], []
        torch.manual_seed(n)
        f(a, p)
        torch.manual_seed(n)
        g(b, q)
        same(p, q)
        same(a, b)


@pytest.mark.parametrize("whole", [False, True])
def test_gradients(whole):
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

    def step(x):
        loss = net(x).square().mean()
        if whole:
            loss.backward()
        return loss

    g = magneto.compile(step)
    for n in SIZES:
        x = torch.randn(n, 4)
        grads = []
        for f in (step, g):
            net.zero_grad()
            loss = f(x)
            if not whole:
                loss.backward()
            grads.append([loss.detach()] + [p.grad.clone() for p in net.parameters()])
        same(*grads)


def graphs(f, calls, **options):
    seen = []

    def backend(gm, example_inputs):
        seen.append(gm)
        return gm.forward

    g = magneto.compile(f, backend=backend, **options)
    for args in calls:
        same(f(*args), g(*args))
    return seen


def test_custom_backends_get_sizes_as_inputs():
    f = lambda x: x.view(x.shape[0] * 2, -1) + torch.zeros(2)
    seen = graphs(f, [(torch.randn(n, 4),) for n in SIZES])
    assert len(seen) == 2
    names = [n.name for n in seen[1].graph.nodes if n.op == "placeholder"]
    assert len(names) == 2 and names[1].startswith("s")


@pytest.mark.parametrize("name", STEADY)
def test_custom_backends(name):
    with torch.no_grad():
        assert len(graphs(STEADY[name], [(torch.randn(n, 4),) for n in SIZES])) == 2


def test_backends_that_compile_for_their_examples():
    def backend(gm, example_inputs):
        size = example_inputs[0].shape
        seen.append(size)

        def run(x):
            assert x.shape == size
            return gm(x)

        return run

    seen = []
    g = magneto.compile(lambda x: x.sin(), backend=backend)
    for n in SIZES * 2:
        x = torch.randn(n)
        same(x.sin(), g(x))
    assert len(seen) == len(SIZES) + 1  # once in vain, with the second size as a symbol


@pytest.mark.parametrize("unbound", [False, True])
def test_backends_that_wrap_the_graph(unbound):
    def backend(gm, example_inputs):
        seen.append(gm)
        if not unbound:
            return lambda *args: gm(*args)
        run = lambda *args: gm(*args) if args else later
        if not seen:
            later = None
        return run

    seen = []
    g = magneto.compile(lambda x: x.sin(), backend=backend)
    for n in SIZES * 2:
        x = torch.randn(n)
        same(x.sin(), g(x))
    assert len(seen) == 2


def test_settings_are_no_part_of_the_recording():
    """torch._dynamo.config answers in Python, which a recording must not take for the program's."""
    import torch._dynamo.config

    f = lambda x: x * 2
    assert recordings(f, [(torch.randn(3),)] * 3) == 1
    assert counts().bytecodes < 20


def compiled(f, calls, **options):
    """Kernels that were looked up in the cache, call by call: a compilation asks for all of its own."""
    g, n = magneto.compile(f, fullgraph=True, **options), []
    with torch.no_grad():
        for args in calls:
            before = _magneto.kernel_cache_info()
            same(f(*args), g(*args))
            after = _magneto.kernel_cache_info()
            n.append(after["hits"] + after["misses"] - before["hits"] - before["misses"])
    return n


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = (
            torch.nn.Linear(16, 48),
            torch.nn.Linear(16, 16),
            torch.nn.LayerNorm(16),
        )

    def forward(self, x, past):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, 2, c // 2).transpose(1, 2) for z in self.qkv(self.norm(x)).split(c, 2))
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).reshape(b, t, c)), (k, v)


class Images(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = (
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.Conv2d(8, 8, 3, stride=2),
            torch.nn.BatchNorm2d(8),
        )
        self.eval()

    def forward(self, x):
        y = self.norm(self.a(x)).relu()
        return F.adaptive_avg_pool2d(self.b(y + y.mean((2, 3), keepdim=True)), 1).flatten(1)


DECODER, IMAGES, BLOCK = Decoder(), Images(), Attention()
ONE_PLAN = {
    "a cache that grows": (DECODER, [(torch.randn(1, 1, 16), (torch.randn(1, 2, n, 8), torch.randn(1, 2, n, 8))) for n in range(4, 90)]),
    "batches of images": (IMAGES, [(torch.randn(n, 3, 9, 9),) for n in (4, 7, 2, 9, 3, 16)]),
    "images of many sizes": (IMAGES, [(torch.randn(2, 3, n, m),) for n, m in ((9, 9), (11, 13), (20, 7), (8, 30))]),
    "sequences": (BLOCK, [(torch.randn(b, n, 8),) for b, n in ((3, 7), (5, 4), (4, 9), (7, 33), (6, 16))]),
    "reductions": (lambda x: (x.softmax(-1), x.sum(0), x.cumsum(1), x.amax(), x.argmax(1)), [(torch.randn(n, m),) for n, m in ((5, 7), (33, 40), (4, 99))]),
    "transposed": (lambda x: x.t().contiguous() * 2, [(torch.randn(n, m),) for n, m in ((5, 7), (33, 40), (64, 128))]),
    "halves": (lambda x: x[: x.shape[0] // 2] + 1, [(torch.randn(n, 4),) for n in (8, 9, 33, 100)]),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_PLAN)
def test_other_sizes_compile_nothing(name):
    f, calls = ONE_PLAN[name]
    n = compiled(f, calls, dynamic=True)
    assert n[0] and not any(n[1:]), n
    assert not any(compiled(f, calls + calls[:2])[2:])


def test_what_was_assumed_of_sizes_is_checked():
    """Rows that fit on the stack are kept there, longer ones are another plan; so is a number that ATen's op gets."""
    f = lambda x: x.softmax(-1)
    n = compiled(f, [(torch.randn(2, m),) for m in (50, 60, 60000, 70, 70000)], dynamic=True)
    assert n[2] and not n[1] and not n[3] and not n[4], n
    f = lambda x: x.sort(0)[0].roll(x.shape[0] - 2, 0) + torch.randperm(x.shape[0]).sum()
    compiled(f, [(torch.randn(m),) for m in (5, 60, 7, 60, 5)], dynamic=True)


def test_sizes_at_which_the_library_refuses():
    linear = torch.nn.Linear(4, 7)
    f = lambda x: linear(x[2:]).relu() + 1
    compiled(f, [(torch.randn(m, 4),) for m in (5, 2, 9, 3, 2, 6)], dynamic=True)


def test_inputs_that_are_written_and_overlap():
    def f(x, y):
        y.mul_(2)
        return x.add_(y)

    g = magneto.compile(f, dynamic=True)
    for n in (5, 9, 4, 9):
        x, y = torch.randn(n), torch.randn(n)
        a, b = x.clone(), y.clone()
        same((f(a, b), a, b), (g(x, y), x, y))
        x = torch.randn(2 * n)
        a = x.clone()
        same((f(a[:n], a[:n]), a), (g(x[:n], x[:n]), x))


def test_sizes_of_several_threads():
    import threading

    g, bad = magneto.compile(BLOCK, dynamic=True), []

    def work(seed):
        with torch.no_grad():
            for n in range(2 + seed % 3, 40, 3):
                x = torch.randn(2, n, 8)
                if not torch.allclose(BLOCK(x), g(x), atol=1e-5):
                    bad.append(n)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_many_sizes_are_forgotten():
    f = lambda x: x * 2 + x.mean()
    assert recordings(f, [(torch.randn(n),) for n in [*range(2, 1200), 2, 3]], dynamic=True) == 1


def gradients(f, parameters, args):
    for p in parameters:
        p.grad = None
    y = f(*args)
    (y * torch.arange(y.numel()).view(y.shape).sin()).sum().backward()
    return y.detach(), [None if p.grad is None else p.grad.clone() for p in parameters]


TRAIN = {
    "layers": (torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)), (8,)),
    "convolutions": (torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(8, 4, 3)), (3, 12, 12)),
    "signals": (torch.nn.Sequential(torch.nn.Conv1d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv1d(8, 4, 3, stride=2)), (3, 12)),
    "attention": (Attention(), (7, 8)),
    "dropout": (torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4)), (8,)),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAIN)
def test_training_with_batches_of_many_sizes(name):
    """The last batch of an epoch is smaller: two recordings, and no compilation for the sizes after them."""
    import copy

    m, size = TRAIN[name]
    eager, g = copy.deepcopy(m), magneto.compile(m)
    for i, n in enumerate((8, 5, 7, 3, 12, 8, 5)):
        x = torch.randn(n, *size)
        torch.manual_seed(i)
        want = gradients(eager, list(eager.parameters()), (x,))
        torch.manual_seed(i)
        same(want, gradients(g, list(m.parameters()), (x,)))
        same(list(eager.buffers()), list(m.buffers()))
    assert counts().entries == 2 and counts().joint_graphs == 2


def test_training_sequences_of_many_lengths():
    block = Attention()
    g = magneto.compile(block, dynamic=True)
    for b, n in ((3, 7), (5, 4), (4, 9), (7, 33)):
        x = torch.randn(b, n, 8, requires_grad=True)
        same(gradients(block, [x, *block.parameters()], (x,)), gradients(g, [x, *block.parameters()], (x,)))
    assert counts().entries == 1 and counts().joint_graphs == 1


def test_backward_passes_of_several_sizes_in_any_order():
    f = lambda x, w: ((x @ w).tanh() @ w.t()).sigmoid()
    g, w = magneto.compile(f, dynamic=True), torch.randn(4, 6, requires_grad=True)
    xs = [torch.randn(n, 4, requires_grad=True) for n in (5, 9, 7, 5)]
    ys = [(f(x, w), g(x, w)) for x in xs]
    for k in (2, 0, 3, 1):
        a, b = (torch.autograd.grad(y, (xs[k], w), torch.ones_like(y) * 2, retain_graph=True) for y in ys[k])
        same(a, b)
        same(
            torch.autograd.grad(ys[k][0].mT, xs[k], xs[k].detach().t().contiguous()),
            torch.autograd.grad(ys[k][1].mT, xs[k], xs[k].detach().t().contiguous()),
        )
    x = xs[1]
    once = [torch.autograd.grad(h(x, w).sum(), x, create_graph=True)[0] for h in (f, g)]
    same(torch.autograd.grad(once[0].square().sum(), w), torch.autograd.grad(once[1].square().sum(), w))


def test_whole_steps_with_batches_of_many_sizes():
    import copy

    m = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    eager = copy.deepcopy(m)

    def make(m, opt):
        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(m(x), y)
            loss.backward()
            opt.step()
            return loss.detach()

        return step

    f, g = (
        make(eager, torch.optim.AdamW(eager.parameters(), 1e-2)),
        magneto.compile(make(m, torch.optim.AdamW(m.parameters(), 1e-2))),
    )
    for n in (8, 8, 8, 5, 7, 3, 12, 8):
        x, y = torch.randn(n, 8), torch.randint(0, 4, (n,))
        same(f(x, y), g(x, y))
        same(list(eager.parameters()), list(m.parameters()))
    assert counts().entries == 3


def test_sizes_that_are_one_by_computation_broadcast():
    """A dimension whose size is an expression that happens to be 1."""
    f = lambda x, y: y[: min(x.shape[0] - 4, 3)] * x + x[: x.shape[0] // 5].sum(1, keepdim=True)
    compiled(f, [(torch.randn(n, 4), torch.randn(6, 4)) for n in (5, 5)], dynamic=True)
    f = lambda x: x[:, : x.shape[1] // 4] * x[: x.shape[0] // 3]
    compiled(f, [(torch.randn(n, m),) for n, m in ((4, 5), (5, 7), (3, 6))], dynamic=True)
    a, t = torch.randn(5, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    g = magneto.compile(torch.linalg.householder_product, dynamic=True)
    same(gradients(torch.linalg.householder_product, (a, t), (a, t)), gradients(g, (a, t), (a, t)))


def test_products_in_inference_mode():
    """There matmul is one operation to a dispatch mode; what it is made of is asked of its kernel in C++."""

    @torch.inference_mode()
    def f(x):
        k = x.flatten(2).transpose(1, 2)
        return torch.matmul(k, x.flatten(2)), torch.matmul(x, W), torch.einsum("abcd,ed->abce", x, W.t())

    older = torch.__version__ < "2.12"  # whose product asks for one more size itself
    assert recordings(f, [(torch.randn(n, n + 2, 3, 4),) for n in (3, 5, 8)]) == 2 + older


@torch.library.custom_op("dynamic_sizes::rows", mutates_args=(), schema="(Tensor x, Tensor w) -> Tensor")
def rows(x, w):
    return x[:40] @ w


rows.register_fake(lambda x, w: torch.empty(min(x.shape[0], 40), w.shape[1]))
rows.register_autograd(
    lambda ctx, g: (
        F.pad(g @ ctx.saved_tensors[1].mT, (0, 0, 0, max(ctx.saved_tensors[0].shape[0] - 40, 0))),
        ctx.saved_tensors[0][:40].mT @ g,
    ),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def test_the_length_of_a_tensor_is_a_size():
    class Own(torch.Tensor):
        def __len__(self):
            return self.shape[0] * 2

    def f(x):
        return (
            (x * len(x) + torch.eye(len(x))).sum() / len(x),
            len(x),
            len(x.T),
            list(range(2 * len(x)))[-1] if len(x) > 100 else 0,
        )

    assert recordings(f, [(torch.rand(n, n),) for n in SIZES]) <= 2
    recordings(lambda x: x + len(x), [(torch.rand(n).as_subclass(Own),) for n in SIZES])
    g = magneto.compile(lambda x: len(x))
    with pytest.raises(TypeError, match="0-d"):
        g(torch.ones(()))


def test_images_that_are_scaled_by_fractions():
    for fn in (
        lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
        lambda x: F.interpolate(x, scale_factor=0.7),
        lambda x: F.interpolate(x, scale_factor=1.3, mode="area"),
        lambda x: F.interpolate(x.double(), scale_factor=(2.0, 0.5), mode="bicubic"),
    ):
        magneto.reset()
        assert (
            recordings(
                fn, [(torch.rand(2, 3, h, w),) for h, w in ((8, 8), (9, 10), (11, 13), (15, 12), (30, 7))]
            )
            <= 2
        )


def test_images_that_are_sampled_at_many_points():
    def at(x, grid):
        return F.grid_sample(x, grid, align_corners=False) + 1

    def moved(x, theta):
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)

    sizes = ((8, 8), (9, 10), (11, 13), (15, 12))
    for fn, args in (
        (at, [(torch.rand(2, 3, w, h), torch.rand(2, h, w, 2)) for h, w in sizes]),
        (at, [(torch.rand(2, 3, 4, w, h), torch.rand(2, 4, h, w, 3)) for h, w in sizes]),
        (moved, [(torch.rand(2, 3, h, w), torch.rand(2, 2, 3)) for h, w in sizes]),
    ):
        assert len(graphs(fn, args)) == 2
        magneto.reset()
        assert recordings(fn, args) <= 2


def test_doubles_that_are_upsampled_in_training():
    conv = torch.nn.Conv2d(2, 2, 3, padding=1).double()

    def f(x):
        a = F.interpolate(F.max_pool2d(conv(x), 2), scale_factor=2.0, mode="bilinear", align_corners=True)
        h, w = x.shape[2] - a.shape[2], x.shape[3] - a.shape[3]
        return torch.cat([x, F.pad(a, [w // 2, w - w // 2, h // 2, h - h // 2])], 1)

    g = magneto.compile(f, fullgraph=True)
    for h, w in ((8, 8), (9, 10), (11, 13), (15, 12)):
        x = torch.rand(2, 2, h, w, dtype=torch.double)
        same(f(x), g(x))
    assert counts().entries <= 2


def test_operators_of_the_program_follow_sizes():
    """Their own shape function says how; where it takes another way, the code is recorded again."""
    w = torch.randn(4, 6, requires_grad=True)
    f = lambda x: rows(x.repeat(2, 1), w).relu() * 2
    assert recordings(f, [(torch.randn(n, 4),) for n in (2, 3, 5, 9)]) == 2
    assert recordings(f, [(torch.randn(n, 4),) for n in (2, 3, 30, 9, 30, 50)]) == 3
    g = magneto.compile(f)
    for n in (2, 3, 5):
        a, b = (torch.ones(n, 4, requires_grad=True) for _ in "ab")
        same(torch.autograd.grad(f(a).sum(), (a, w)), torch.autograd.grad(g(b).sum(), (b, w)))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.linalg.solve_triangular(x.tril(), x[:, :, :2], upper=False),
        lambda x: torch.linalg.inv(x),
        lambda x: x.slogdet(),
        lambda x: torch.linalg.solve(x, x[..., :3]),
        lambda x: torch.linalg.eigh(x + x.mT)[0],
        lambda x: torch.linalg.cholesky(x @ x.mT),
        lambda x: torch.cholesky_solve(x[:, :, :1], x.tril()),
        lambda x: torch.linalg.lu_factor(x),
        lambda x: torch.linalg.qr(x)[1].abs(),
        lambda x: F.unfold(x[:, None, :4, :4], 3),
        lambda x: torch.histc(x, 5) + x.shape[0],
    ],
)
def test_ops_of_libraries_follow_sizes(fn):
    inputs = [(torch.randn(n, k, k) + 5 * torch.eye(k),) for n, k in ((2, 4), (3, 5), (5, 7), (4, 6))]
    assert recordings(fn, inputs) == 2


@pytest.mark.parametrize(
    "make", [lambda x: torch.zeros(x.shape[0] - 5) + 1, lambda x: x.new_zeros(2, x.shape[0] - 5)]
)
def test_negative_sizes_raise_what_eager_raises(make):
    g = magneto.compile(make)
    for n in (8, 9):
        same(make(torch.ones(n)), g(torch.ones(n)))
    with pytest.raises(RuntimeError, match="negative"):
        g(torch.ones(4))


def test_questions_about_means():
    """A value that depends on a size and on data breaks the graph, but leaves sizes symbols; one that depends on a size alone is a constant."""

    def mean(x):
        y = x.sum() / x.shape[0]
        if y > 0:
            return x * 3
        return x - 1

    def clamped(x):
        return torch.arange(0, torch.clamp(x.max().ceil() + 1, max=x.shape[0]).to(torch.int32)) * 2, x + 1

    def size(x):
        n = torch.tensor(x.shape[0]) * 2
        return x * 2 if n.item() > 8 else x + 1

    for fn, most in ((mean, 4), (clamped, 4), (size, 6)):
        graphs = []
        opt = magneto.compile(fn, backend=lambda gm, example: graphs.append(gm) or gm)
        for n in (4, 5, 6, 7, 8, 9):
            x = torch.arange(float(n))
            torch.testing.assert_close(opt(x), fn(x))
        assert len(graphs) <= most
    magneto.reset()


def test_methods_of_tensors_as_keys():
    """Sizes that C code asks a tensor's bound method for, and compares."""

    def slowest_first(x):
        return x.permute(sorted(range(x.dim()), key=x.stride, reverse=True)) + max(range(x.dim()), key=x.size)

    assert (
        recordings(slowest_first, [(torch.randn(n, 2, 2 * n).transpose(0, 2),) for n in SIZES], dynamic=True)
        == 1
    )


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x * 2, (x > 0).sum().item()),
        lambda x: (x * 2, x[0, 0].int().item() + x.sum(1).long().sum().item()),
        lambda x: (torch._check_tensor_all((x > -9).sum() * 4 == x.numel() * 4), x * 2),
        lambda x: (torch._check((x > -9).sum().item() <= x.numel()), x * 2),
    ],
)
def test_numbers_out_of_tensors_leave_sizes_symbols(fn):
    """Looking whether an integer is computed of constants alone made every size on the way to the input one."""
    _magneto.reset()
    compiled, before = magneto.compile(fn), counts().entries
    for n in range(2, 8):
        x = torch.arange(3.0 * n).view(n, 3)
        got, want = compiled(x), fn(x)
        for a, b in zip(got, want):
            assert type(a) is type(b) and (torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b)
    assert counts().entries - before == 2
