"""torch.autograd's functions, options, hooks and errors with compiled functions in the gradient graph."""

import threading

import pytest
import torch
import torch.nn.functional as F

from programs import Registry, grads, leaf, mlp

program = Registry()
grad = torch.autograd.grad


def poly(x, y):
    return (x * y).sin() + y * y, x.exp()


# ---- torch.autograd.grad ----


@program()
def grad_allow_unused(C):
    f = C(lambda x, y: (x * 2).sin() + y.detach())
    x, y, z = leaf(3), leaf(3), leaf(3)
    return [grad(f(x, y).sum(), [x, y, z], allow_unused=True)]


@program()
def grad_unused_is_an_error(C):
    f = C(lambda x, y: (x * 2).sin() + y.detach())
    x, y = leaf(3), leaf(3)
    grad(f(x, y).sum(), [x, y])


@program()
def grad_unused_argument_of_node_is_an_error(C):
    f = C(lambda x, y: (x.sin(), y.cos()))
    x, y = leaf(3), leaf(3)
    grad(f(x, y)[0].sum(), [x, y])


@program()
def grad_materialized(C):
    f = C(lambda x, y: (x.sin(), y.cos()))
    x, y = leaf(3), leaf(3)
    return [grad(f(x, y)[0].sum(), [x, y], materialize_grads=True)]


@program()
def grad_of_several_outputs(C):
    x, y = leaf(3), leaf(3)
    a, b = C(poly)(x, y)
    return [grad([a, b], [x, y], [torch.ones(3), torch.full((3,), 2.0)])]


@program()
def grad_with_respect_to_a_result(C):
    x, y = leaf(3), leaf(3)
    a, b = C(poly)(x, y)
    return [grad((a * b).sum(), [a, b, x])]


@program()
def grad_batched(C):
    x, y = leaf(3), leaf(3)
    a, _ = C(poly)(x, y)
    return [grad(a, [x, y], torch.eye(3), is_grads_batched=True)]


@program()
def jacobian_of_compiled(C):
    x, y = leaf(3), leaf(3)
    f = C(poly)
    return [torch.autograd.functional.jacobian(lambda x, y: f(x, y)[0], (x, y))]


@program()
def hessian_of_compiled(C):
    x = leaf(3)
    f = C(lambda x: (x.sin() * x).sum())
    return [
        torch.autograd.functional.hessian(f, x),
        torch.autograd.functional.vjp(f, x),
        torch.autograd.functional.hvp(f, x, torch.ones(3)),
    ]


@program()
def grad_outputs_of_wrong_shape(C):
    x = leaf(3)
    grad(C(lambda x: x * x)(x), x, torch.ones(4))


@program()
def grad_shapes_for_scalars_only(C):
    x = leaf(3)
    grad(C(lambda x: x * x)(x), x)


@program(joint=0)
def backward_of_result_without_graph(C):
    f = C(lambda x: x.detach() * 2)
    f(leaf(3)).sum().backward()


@program()
def backward_with_inputs(C):
    x, y = leaf(3), leaf(3)
    a, b = C(poly)(x, y)
    (a + b).sum().backward(inputs=[y])
    return grads(x, y)


@program()
def backward_twice_retained(C):
    x, y = leaf(3), leaf(3)
    a, b = C(poly)(x, y)
    a.sum().backward(retain_graph=True)
    a.sum().backward(retain_graph=True)
    b.sum().backward()
    return grads(x, y)


@program()
def backward_of_each_result_without_retain(C):
    f = C(lambda x, y: (x.sin(), y.sin()))
    x, y = leaf(3), leaf(3)
    a, b = f(x, y)
    a.sum().backward(retain_graph=True)
    b.sum().backward()
    return grads(x, y)


@program()
def part_of_graph_freed(C):
    x = leaf(3)
    h = x.exp()
    f = C(lambda h: h * h)
    a, b = f(h), f(h)
    a.sum().backward()
    b.sum().backward()


@program()
def accumulates_into_existing_grad(C):
    m = mlp()
    f = C(m)
    x = torch.randn(2, 4)
    f(x).sum().backward()
    first = [p.grad for p in m.parameters()]
    f(x * 2).sum().backward()
    return [grads(m), all(p.grad is g for p, g in zip(m.parameters(), first))]


@program()
def gradient_is_not_shared(C):
    """Eager steals a gradient that nobody else holds; two leaves never get the same tensor."""
    f = C(lambda x, y: x + y)
    x, y = leaf(3), leaf(3)
    f(x, y).sum().backward()
    x.grad.add_(1)
    return grads(x, y)


@program()
def grad_set_to_none_and_zero(C):
    m = mlp()
    f = C(m)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    res = []
    for i in range(4):
        opt.zero_grad(set_to_none=i % 2 == 0)
        f(torch.randn(2, 4)).sum().backward()
        res.append([g.clone() for g in grads(m)[0].values()])
    return res


@program()
def leaf_used_in_and_outside(C):
    m = mlp(3, 3)
    f = C(m)
    x = leaf(2, 3)
    (f(x) + m[0].weight.sum() + x.sum()).sum().backward()
    return [x.grad, grads(m)]


@program()
def no_tangent_for_the_results(C):
    f = C(lambda x: x.sin())
    x = leaf(3)
    y = f(x)
    (x * 2).sum().backward()
    return [x.grad, y.grad_fn is not None]


@program()
def gradient_layout_contract(C):
    """A gradient accumulates in the layout of its parameter."""
    m = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    f = C(m)
    f(torch.randn(2, 3, 8, 8)).pow(2).sum().backward()
    return grads(m)


@program(joint=None)
def sparse_gradient_of_embedding(C):
    m = torch.nn.Embedding(10, 3, sparse=True)
    y = C(m)(torch.tensor([1, 2, 2]))
    y.sum().backward()
    return [y, m.weight.grad.to_dense()]


# ---- hooks ----


@program()
def hooks_on_inputs_results_parameters(C):
    seen = [None] * 5
    m = mlp()
    f = C(m)
    x = leaf(2, 4)
    for i, p in enumerate((x, *m.parameters())):
        p.register_hook(lambda g, i=i: seen.__setitem__(i, g.clone()))
    m[0].weight.register_hook(lambda g: g * 2)
    y = f(x)
    y.register_hook(lambda g: g + 1)
    y.sum().backward()
    return [seen, x.grad, grads(m)]


@program()
def removed_hook(C):
    x = leaf(3)
    f = C(lambda x: x.sin())
    h = x.register_hook(lambda g: g * 5)
    f(x).sum().backward()
    h.remove()
    f(x).sum().backward()
    return [x.grad]


@program()
def hook_that_raises(C):
    def hook(g):
        raise ValueError("no")

    x = leaf(3)
    y = C(lambda x: x.sin())(x)
    y.register_hook(hook)
    y.sum().backward()


@program(graphs=None, joint=None, breaks=None)
def post_accumulate_hook_that_returns_something(C):
    m = mlp()
    m[0].weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))

    @C
    def step(x):
        m(x).sum().backward()

    step(torch.randn(5, 4))


@program()
def post_accumulate_hook_steps_the_optimizer(C):
    m = mlp()
    f = C(m)
    for p in m.parameters():
        opt = torch.optim.SGD([p], 0.1)
        p.register_post_accumulate_grad_hook(lambda _, o=opt: (o.step(), o.zero_grad()))
    for i in range(3):
        f(torch.randn(2, 4)).pow(2).sum().backward()
    return [list(m.parameters()), grads(m)]


@program(graphs=None)
def full_backward_hooks_of_an_inner_module(C):
    seen = []
    m = mlp()
    m[0].register_full_backward_hook(lambda mod, gi, go: seen.extend([*gi, *go]))
    m[1].register_full_backward_pre_hook(lambda mod, go: (go[0] * 2,))
    m[2].register_full_backward_hook(lambda mod, gi, go: (gi[0] + 1,))
    f = C(m)
    x = leaf(2, 4)
    for _ in range(2):
        f(x).sum().backward()
    return [seen, x.grad, grads(m)]


@program(graphs=None)
def full_backward_hook_of_the_outer_module(C):
    seen = []
    m = mlp()
    f = C(m)
    f.register_full_backward_hook(lambda mod, gi, go: seen.extend([*gi, *go]))
    f.register_full_backward_pre_hook(lambda mod, go: (go[0] * 2,))
    x = leaf(2, 4)
    for _ in range(2):
        f(x).sum().backward()
    return [seen, x.grad, grads(m)]


@program(graphs=None)
def forward_hooks_and_activations(C):
    m = mlp()
    kept = {}
    m[0].register_forward_hook(lambda mod, i, o: kept.__setitem__("first", o))
    m[2].register_forward_pre_hook(lambda mod, i: (i[0] * 2,))
    f = C(m)
    y = f(torch.randn(2, 4))
    (y.sum() + kept["first"].pow(2).sum()).backward()
    return [y, kept, grads(m)]


@program(graphs=None)
def hook_registered_inside(C):
    seen = []

    def f(x):
        h = x.sin()
        h.register_hook(lambda g: seen.append(g.clone()))
        return (h * x).cos()

    x = leaf(3)
    f = C(f)
    for _ in range(2):
        f(x).sum().backward()
    return [seen, x.grad]


@program(graphs=None)
def retain_grad_inside(C):
    def f(x):
        h = x.sin()
        h.retain_grad()
        return (h * x).cos(), h

    x = leaf(3)
    y, h = C(f)(x)
    y.sum().backward()
    return [h.grad, x.grad]


@program()
def multi_grad_hook(C):
    seen = []
    x, y = leaf(3), leaf(3)
    a, b = C(poly)(x, y)
    torch.autograd.graph.register_multi_grad_hook(
        [a, b, x], lambda gs: seen.append([None if g is None else g.clone() for g in gs])
    )
    (a + b).sum().backward()
    return [seen, grads(x, y)]


@program()
def multi_grad_hook_on_a_result_that_is_not_reached(C):
    seen = []
    x, y = leaf(3), leaf(3)
    a, b = C(poly)(x, y)
    torch.autograd.graph.register_multi_grad_hook(
        [a, x], lambda gs: seen.append([None if g is None else g.clone() for g in gs])
    )
    torch.autograd.graph.register_multi_grad_hook([b, a], lambda g: seen.append(g.clone()), mode="any")
    a.sum().backward()
    return [seen, grads(x, y)]


@program()
def hooks_on_results_that_are_not_reached(C):
    seen = []
    x, y = leaf(3), leaf(3)
    a, b = C(poly)(x, y)
    a.register_hook(lambda g: seen.append(g.clone()))
    a.register_hook(lambda g: g * 2)
    handle = b.register_hook(lambda g: g * seen.append("not reached"))
    b.retain_grad()
    a.sum().backward(retain_graph=True)
    handle.remove()
    b.register_hook(lambda g: seen.append(g.clone()) or g + 1)
    (a + b).sum().backward()
    return [seen, grads(x, y), b.grad, len(b._backward_hooks), b.grad_fn is not None]


@program()
def hook_on_one_of_several_returns_no_tensor(C):
    a, b = C(poly)(leaf(3), leaf(3))
    a.register_hook(lambda g: 1)
    (a + b).sum().backward()


@program()
def hook_on_one_of_several_changes_the_size(C):
    def larger(g):
        return torch.ones(5)

    a, b = C(poly)(leaf(3), leaf(3))
    a.register_hook(larger)
    (a + b).sum().backward()


@program()
def grad_fn_is_walkable(C):
    x, y = leaf(3), leaf(3)
    a, b = C(poly)(x, y)
    fn = a.grad_fn
    return [
        fn is not None,
        b.grad_fn is not None,
        len(fn.next_functions) > 0,
        callable(fn.name),
        isinstance(fn.metadata, dict),
    ]


@program()
def gradient_edges(C):
    x = leaf(3)
    a = C(lambda x: x.sin() * x)(x)
    edge = torch.autograd.graph.get_gradient_edge(a)
    return [grad(edge, x, torch.ones(3))]


# ---- saved tensors ----


@program()
def save_on_cpu(C):
    m = mlp()
    f = C(m)
    with torch.autograd.graph.save_on_cpu():
        y = f(torch.randn(2, 4))
    y.sum().backward()
    return [y, grads(m)]


@program()
def disable_saved_tensors_hooks(C):
    f = C(lambda x: x.sin())
    x = leaf(3)
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        y = f(x)
    y.sum().backward()
    return [y, x.grad]


@program(graphs=None)
def allow_mutation_on_saved_tensors(C):
    f = C(lambda x: x * x)
    x = leaf(3)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        h = x.clone()
        y = f(h)
        h.mul_(3)
        y.sum().backward()
    return [y, x.grad]


@program()
def parameter_updated_before_backward(C):
    m = mlp()
    f = C(m)
    y = f(leaf(2, 4))
    torch.optim.SGD(m.parameters(), 0.1).step()
    with torch.no_grad():
        m[2].weight.mul_(2)
    y.sum().backward()


@program()
def data_of_parameter_changed_before_backward(C):
    """Writes through .data are not noticed by anyone."""
    w = leaf(3)
    x = leaf(3)
    y = C(lambda x, w: x * w)(x, w)
    w.data.mul_(2)
    y.sum().backward()
    return grads(x, w)


# ---- second derivatives ----


@program()
def penalty_inside(C):
    m = mlp()

    def f(x):
        x = x.detach().requires_grad_()
        (g,) = grad(m(x).sum(), x, create_graph=True)
        return ((g.norm(2, 1) - 1) ** 2).mean()

    y = C(f)(torch.randn(5, 4))
    y.backward()
    return [y, grads(m)]


@program(joint=0)
def forces_inside(C):
    m = mlp()

    def f(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            e = m(x).sum()
            (g,) = grad(e, x)
        return e.detach(), -g

    return C(f)(torch.randn(5, 4))


@program()
def double_backward_of_a_module(C):
    m = mlp()
    f = C(m)
    x = leaf(5, 4)
    y = f(x)
    (g,) = grad(y.sum(), x, create_graph=True)
    (g.pow(2).sum() + y.sum()).backward()
    return [g, x.grad, grads(m)]


@program()
def double_backward_twice(C):
    x, y = leaf(3), leaf(3)
    a, _ = C(poly)(x, y)
    gx, gy = grad(a.sum(), [x, y], create_graph=True)
    s = (gx * gy).sum()
    return [grad(s, [x, y], retain_graph=True), grad(s, [x, y]), gx, gy]


@program()
def double_backward_with_views_and_aside(C):
    def f(x):
        y = x.sin()
        return y, y[0], y.argmax(), x

    x = leaf(3, 2)
    a, b, i, _ = C(f)(x)
    (g,) = grad(a.pow(3).sum() + b.sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    return [g, i, x.grad]


@program()
def double_backward_with_undefined(C):
    x, y = leaf(3), leaf(3)
    a, b = C(lambda x, y: (x.sin(), (y * x).cos()))(x, y)
    g = grad(a.sum(), [x, y], create_graph=True, allow_unused=True)
    g[0].sum().backward()
    return [g, x.grad, y.grad]


@program()
def hook_on_the_gradient_of_a_gradient(C):
    x = leaf(3)
    a = C(lambda x: x.sin() * x)(x)
    (g,) = grad(a.sum(), x, create_graph=True)
    seen = []
    g.register_hook(lambda t: seen.append(t.clone()))
    g.pow(2).sum().backward()
    return [seen, x.grad]


@program()
def create_graph_backward_into_grad(C):
    x = leaf(3)
    a = C(lambda x: x.sin() * x)(x)
    a.sum().backward(create_graph=True)
    g = x.grad
    x.grad = None
    g.sum().backward()
    return [g.detach(), x.grad]


# ---- modes and threads ----


@program()
def nan_in_anomaly_mode(C):
    f = C(lambda x: (x * 0).sqrt() * x)
    x = leaf(3)
    f(x).sum()
    with torch.autograd.set_detect_anomaly(True):
        f(x).sum().backward()


@program()
def nan_in_backward_alone_under_anomaly_mode(C):
    x = leaf(3)
    y = C(lambda x: (x * 0).sqrt().sum())(x)
    with torch.autograd.set_detect_anomaly(True):
        y.backward()


@program()
def backward_in_another_thread(C):
    m = mlp()
    f = C(m)
    y = f(torch.randn(2, 4))
    t = threading.Thread(target=lambda: y.sum().backward())
    t.start()
    t.join()
    return [grads(m)]


@program(graphs=None)
def forward_and_backward_in_threads(C):
    m = mlp()
    f = C(m)
    x = torch.randn(2, 4)
    res = [None] * 4

    def work(i):
        res[i] = grad(f(x * (i + 1)).sum(), list(m.parameters()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return res


@program()
def backward_under_no_grad(C):
    x = leaf(3)
    y = C(lambda x: x.sin())(x).sum()
    with torch.no_grad():
        y.backward()
    return [x.grad]


@program()
def backward_under_inference_mode_is_an_error(C):
    x = leaf(3)
    y = C(lambda x: x.sin())(x).sum()
    with torch.inference_mode():
        y.backward()


@program()
def deterministic_algorithms(C):
    torch.use_deterministic_algorithms(True)
    try:
        x, i = leaf(5, 3), torch.tensor([0, 1, 1])
        C(lambda x, i: x[i].sin())(x, i).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    return [x.grad]


@program(graphs=None)
def forward_mode_of_compiled(C):
    f = C(lambda x: x.sin() * 2)
    x = torch.randn(3)
    with torch.autograd.forward_ad.dual_level():
        d = torch.autograd.forward_ad.make_dual(x, torch.ones(3))
        return [torch.autograd.forward_ad.unpack_dual(f(d)).tangent]


@program()
def backward_inside_backward(C):
    """A reentrant engine: a hook runs another compiled backward pass."""
    f = C(lambda x: x.sin() * 2)
    x, z = leaf(3), leaf(3)
    y = f(x)

    @torch.enable_grad()
    def hook(g):
        f(z).sum().backward()

    y.register_hook(hook)
    y.sum().backward()
    return grads(x, z)


@program()
def retain_grad_on_result(C):
    x = leaf(3)
    y = C(lambda x: x.sin())(x)
    y.retain_grad()
    (y * 2).sum().backward()
    return [y.grad, x.grad]


@program()
def result_deepcopied_is_an_error(C):
    import copy

    copy.deepcopy(C(lambda x: x.sin())(leaf(3)))


@program()
def result_numpy_is_an_error(C):
    C(lambda x: x.sin())(leaf(3)).numpy()


@program()
def functional_losses(C):
    m = mlp()
    x, y = torch.randn(6, 4), torch.randint(0, 3, (6,))
    f = C(
        lambda x, y: (
            F.cross_entropy(m(x), y, label_smoothing=0.1),
            F.mse_loss(m(x), x[:, :3]),
            F.huber_loss(m(x), x[:, 1:]),
        )
    )
    out = f(x, y)
    sum(out).backward()
    return [out, grads(m)]


@program(graphs=None, joint=None)
def gradients_at_a_value_of_a_graph_that_breaks_there(C):
    x, w = leaf(3), leaf(3)

    def f(x, w):
        handle = w.register_hook(lambda g: g)  # backward after that is not recorded
        y = x * 2
        z = y * w
        (g,) = torch.autograd.grad((z * z).sum(), [y], allow_unused=True, retain_graph=True)
        handle.remove()
        return z, g

    return C(f)(x, w)


@program(graphs=None, joint=None)
def a_hook_on_a_value_that_was_used_before(C):
    x, seen = leaf(3), []

    def f(x):
        y = x.sin()
        z = y * y
        y.register_hook(lambda g: seen.append(g.clone()))
        return y, z

    C(f)(x)[1].sum().backward()
    return seen, x.grad


@program(graphs=None, joint=None)
def retain_grad_on_a_view_that_was_used_before(C):
    x = leaf(2, 3)

    def f(x):
        y = x.view(-1)
        z = y.exp()
        y.retain_grad()
        return y, z

    y, z = C(f)(x)
    z.sum().backward()
    return y.grad, x.grad


@program()
def a_hook_of_a_leaf_outside_of_the_loss(C):
    x, w, seen = leaf(3), leaf(3), []
    w.register_hook(lambda g: seen.append(g.clone()))
    f = C(lambda x, w: (x.sin(), w.cos() * x))
    for use in (0, 1, 0):
        f(x, w)[use].sum().backward()
    return seen, x.grad, w.grad


@program()
def a_second_pass_where_nothing_was_saved(C):
    x, w = leaf(3), leaf(3)
    y, z = C(lambda x, w: (w.cumsum(0), torch.tanh(x)))(x, w)
    for _ in range(2):
        y.sum().backward()
    return x.grad, w.grad


@program(graphs=None, joint=None)
def views_of_a_parameter_behind_a_backward_pass(C):
    w = leaf(2, 3)

    def step(w):
        a, b = w.unbind(0)
        v = w.expand(4, 2, 3)
        (a * b).sum().backward()
        return v, b

    v, b = C(step)(w)
    return v, b, w._version, w.grad


@program(graphs=None, joint=None)
def a_leaf_made_of_what_was_written_in_place(C):
    def f(x):
        y = x.clone()
        y += x
        return y.detach().clone().requires_grad_(), x * 2

    return C(f)(leaf(3))


@pytest.mark.parametrize("name", program.programs)
def test_program(name):
    program.check(name)
