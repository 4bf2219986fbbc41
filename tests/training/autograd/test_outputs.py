"""What a compiled function under autograd returns and writes: several results, aliases, in-place ops, parts without gradients."""

import pytest
import torch
import torch.nn.functional as F

from programs import Registry, grads, leaf

program = Registry()


# ---- results ----


@program()
def many_results(C):
    f = C(
        lambda x, y: (x * y, x.sum(), (x > 0), x.argmax(0), y.detach() * 2, {"a": x + 1, "b": [y.exp(), 3]})
    )
    x, y = leaf(3, 4), leaf(3, 4)
    out = f(x, y)
    torch.autograd.backward([out[0].sum(), out[5]["b"][0].sum()])
    return [out, grads(x, y)]


@program()
def results_of_one_hundred(C):
    f = C(lambda x: [x * i for i in range(100)])
    x = leaf(3)
    out = f(x)
    (out[3] + out[80]).sum().backward()
    return [out, x.grad]


@program()
def only_some_results_used(C):
    f = C(lambda x, y, z: (x * y, y * z, z.sin()))
    res = []
    for use in ([0], [1], [2], [0, 2], [1, 2], [0, 1, 2]):
        x, y, z = leaf(3), leaf(3), leaf(3)
        o = f(x, y, z)
        torch.autograd.backward([o[i].sum() for i in use])
        res.append(grads(x, y, z))
    return res


@program()
def result_with_undefined_tangent_and_saved(C):
    f = C(lambda x, y: ((x * y).exp(), y.exp() * 2))
    x, y = leaf(3), leaf(3)
    a, b = f(x, y)
    b.sum().backward(retain_graph=True)
    first = grads(x, y)[1].clone()
    a.sum().backward()
    return [first, grads(x, y), x.grad is None]


@program(graphs=2, joint=2)
def infinite_derivative_behind_an_undefined_tangent(C):
    """Zeros for an undefined tangent would become NaN."""
    f = C(
        lambda x, y: (
            (x * 0).sqrt() + y,
            (x * y).sum(0),
            torch.cat([x.sin(), (y * 0).norm(dim=1, keepdim=True)], 1),
        )
    )
    res = []
    for n in (3, 4, 5):
        for use in ([1], [2], [1], [1, 2]):
            x, y = leaf(n, 2), leaf(n, 2)
            o = f(x, y)
            torch.autograd.backward([o[i].sum() for i in use])
            res.append(grads(x, y))
    return res


@program()
def detached_alias_of_a_result(C):
    def f(x):
        y = x.sin()
        return y, y.detach()

    x = leaf(3)
    a, b = C(f)(x)
    a.sum().backward()
    return [a, b, x.grad, a.data_ptr() == b.data_ptr(), b._base is None]


@program()
def view_and_base(C):
    def f(x):
        y = x.sin()
        return y, y[0], y.view(-1)[2:5]

    x = leaf(3, 4)
    a, b, c = C(f)(x)
    (b.sum() + (c * 2).sum() + a.sum()).backward()
    return [a, b, c, x.grad, b._base is a, c._base is a]


@program()
def views_of_results_written_later(C):
    def f(x):
        y = x.sin()
        return y, y[0]

    x = leaf(3, 4)
    a, b = C(f)(x)
    with torch.no_grad():
        b.zero_()
    a.mul_(2)
    a.sum().backward()
    return [a, b, x.grad]


@program()
def views_of_results_written_in_graph(C):
    def f(x):
        y = x.sin()
        return y, y[0]

    x = leaf(3, 4)
    a, b = C(f)(x)
    b.mul_(3)
    a.sum().backward()
    return [a, b, x.grad]


@program()
def input_returned(C):
    x = leaf(3)
    a, b = C(lambda x: (x, x * 2))(x)
    b.sum().backward()
    return [a is x, b, x.grad]


@program(joint=0)
def only_views_of_inputs(C):
    x = leaf(3, 4)
    a, b = C(lambda x: (x[0], x.t()))(x)
    (a.sum() + b.exp().sum()).backward()
    return [a, b, x.grad, a._base is x, b._base is x]


@program()
def view_of_input_and_more(C):
    x = leaf(3, 4)
    a, b = C(lambda x: (x.view(-1), x.sin()))(x)
    (a.cos().sum() + b.exp().sum()).backward()
    return [a, b, x.grad, a._base is x]


@program()
def multi_view_results(C):
    x = leaf(6, 4)
    a, b, c = C(lambda x: (x * 2).chunk(3))(x)
    (a.sum() + (b * c).sum()).backward()
    return [a, b, c, x.grad]


@program()
def unbind_results_written(C):
    x = leaf(3, 4)
    a, b, c = C(lambda x: (x * 2).unbind(0))(x)
    a.mul_(2)


@program()
def expanded_result(C):
    x = leaf(3, 1)
    a = C(lambda x: (x * 2).expand(3, 5))(x)
    a.sum().backward()
    return [a, x.grad]


@program(graphs=3, joint=3)
def strides_of_gradients(C):
    res = []
    f = C(lambda x: (x * 3).relu())
    for x in (
        leaf(4, 5),
        torch.randn(5, 4).t().requires_grad_(),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last).requires_grad_(),
    ):
        y = f(x)
        y.sum().backward()
        res += [y, x.grad]
    return res


@program()
def complex_numbers(C):
    x = leaf(3, dtype=torch.complex64)
    y = C(lambda x: (x * x.conj()).real * 2)(x)
    y.sum().backward()
    return [y, x.grad]


@program()
def integer_inputs_and_results(C):
    x, i = leaf(5, 3), torch.tensor([0, 2, 2])
    a, b = C(lambda x, i: (x[i] * 2, i + 1))(x, i)
    a.sum().backward()
    return [a, b, x.grad]


@program()
def mixed_dtypes(C):
    x, y, z = leaf(3), leaf(3, dtype=torch.float64), leaf(3, dtype=torch.bfloat16)
    a, b = C(lambda x, y, z: (x * y, x * z))(x, y, z)
    (a.sum() + b.double().sum()).backward()
    return [a, b, grads(x, y, z)]


@program()
def zero_dim_and_empty(C):
    x, y = leaf(()), leaf(0, 3)
    a, b = C(lambda x, y: (x * 2, y.exp()))(x, y)
    (a + b.sum()).backward()
    return [a, b, grads(x, y)]


@program()
def result_is_a_parameter(C):
    m = torch.nn.Linear(3, 3)
    a, w = C(lambda x: (m(x), m.weight))(torch.randn(2, 3))
    (a.sum() + w.exp().sum()).backward()
    return [a, w is m.weight, grads(m)]


# ---- grad modes ----


@program()
def no_grad_inside(C):
    def f(x, y):
        with torch.no_grad():
            z = x * y
        return z, z * x

    x, y = leaf(3), leaf(3)
    a, b = C(f)(x, y)
    b.sum().backward()
    return [a, b, grads(x, y)]


@program(joint=0)
def called_under_no_grad(C):
    x = leaf(3)
    with torch.no_grad():
        return [C(lambda x: x * 2)(x)]


@program(graphs=2)
def both_modes(C):
    f = C(lambda x: x.exp() * 2)
    x = leaf(3)
    with torch.no_grad():
        a = f(x)
    b = f(x)
    with torch.inference_mode():
        c = x.sum().item()
    b.sum().backward()
    return [a, b, c, x.grad]


@program()
def enable_grad_inside_no_grad(C):
    def f(x):
        with torch.enable_grad():
            y = x * 2
        return y, x * 3

    x = leaf(3)
    with torch.no_grad():
        a, b = C(f)(x)
    a.sum().backward()
    return [a, b, x.grad]


@program()
def set_grad_enabled_as_function(C):
    def f(x, on):
        torch.set_grad_enabled(False)
        y = x * 2
        torch.set_grad_enabled(on)
        return y, x * 3

    x = leaf(3)
    a, b = C(f)(x, True)
    b.sum().backward()
    return [a, b, x.grad, torch.is_grad_enabled()]


@program()
def decorated_no_grad(C):
    @torch.no_grad()
    def scale(x):
        return x.abs().max()

    def f(x):
        return x / scale(x)

    x = leaf(5)
    y = C(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program()
def detach_inside(C):
    def f(x):
        y = x.sin()
        return y * y.detach(), y.detach()

    x = leaf(5)
    a, b = C(f)(x)
    a.sum().backward()
    return [a, b, x.grad]


@program(joint=0)
def requires_grad_inside(C):
    def f(x, y):
        z = x.detach().requires_grad_()
        return z * y, z

    x, y = torch.randn(3), leaf(3)
    a, z = C(f)(x, y)
    a.sum().backward()
    return [a, z.detach(), y.grad]


@program(joint=0)
def leaf_made_inside_gets_its_gradient(C):
    def f(x):
        z = torch.ones(3).requires_grad_()
        return (x * z).sum(), z

    x = leaf(3)
    a, z = C(f)(x)
    a.backward()
    return [a, z, z.grad, x.grad]


@program()
def requires_grad_of_an_input_switched_on(C):
    def f(x):
        x.requires_grad_()
        return x * 2

    x = torch.randn(3)
    a = C(f)(x)
    a.sum().backward()
    return [a, x, x.grad]


@program()
def straight_through(C):
    def f(x):
        return x + (x.round() - x).detach()

    x = leaf(5)
    y = C(f)(x)
    y.pow(2).sum().backward()
    return [y, x.grad]


@program()
def gumbel_softmax_hard(C):
    x = leaf(5, 4)
    torch.manual_seed(1)
    y = C(lambda x: F.softmax(x, -1) + (torch.eye(4)[x.argmax(-1)] - F.softmax(x, -1)).detach())(x)
    y[:, 0].sum().backward()
    return [y, x.grad]


# ---- in place ----


@program()
def inplace_on_fresh(C):
    def f(x):
        y = x * 2
        y += 1
        y.mul_(x)
        y[0] = 0
        y[1:].add_(x[1:])
        return y

    x = leaf(4, 3)
    y = C(f)(x)
    y.exp().sum().backward()
    return [y, x.grad]


@program(joint=0, graphs=None)
def inplace_on_leaf_is_an_error(C):
    def f(x):
        x.add_(1)
        return x * 2

    C(f)(leaf(3))


@program(joint=0, graphs=None)
def inplace_on_view_of_leaf_is_an_error(C):
    def f(x):
        x[0].add_(1)
        return x * 2

    C(f)(leaf(3))


@program()
def inplace_on_leaf_under_no_grad(C):
    def f(x):
        with torch.no_grad():
            x.add_(1)
        return x * 2

    x = leaf(3)
    y = C(f)(x)
    y.sum().backward()
    return [x, y, x.grad]


@program(joint=0)
def inplace_on_nonleaf_input(C):
    def f(h):
        h.mul_(2)
        return h + 1

    x = leaf(3)
    h = x.exp()
    y = C(f)(h)
    (y * h.detach()).sum().backward()
    return [h, y, x.grad]


@program()
def inplace_on_plain_input(C):
    def f(b, x):
        b.mul_(0.9).add_(x.detach(), alpha=0.1)
        return x * b

    b, x = torch.randn(3), leaf(3)
    y = C(f)(b, x)
    y.sum().backward()
    return [b, y, x.grad]


@program(joint=0)
def plain_input_gets_a_gradient_graph(C):
    def f(b, x):
        b.mul_(x)
        return b.sum()

    b, x = torch.randn(3), leaf(3)
    y = C(f)(b, x)
    (y + b.sum()).backward()
    return [b, y, x.grad]


@program(joint=0)
def saved_and_then_written_is_an_error(C):
    def f(x):
        y = x.exp()
        z = y * 2
        y.add_(1)
        return z + y

    x = leaf(3)
    C(f)(x).sum().backward()
    return [x.grad]


@program()
def index_put_and_masked_fill(C):
    def f(x, m):
        y = x.clone()
        y[m] = 0
        y = y.masked_fill(y > 1, 2.0)
        y[:, 1] = x[:, 0] * 2
        return y

    x, m = leaf(4, 3), torch.tensor([True, False, True, False])
    y = C(f)(x, m)
    y.pow(2).sum().backward()
    return [y, x.grad]


@program()
def copy_into_slices(C):
    def f(x, y):
        out = torch.zeros(4, 3)
        out[:2] = x
        out[2:].copy_(y)
        return out

    x, y = leaf(2, 3), leaf(2, 3)
    o = C(f)(x, y)
    o.pow(2).sum().backward()
    return [o, grads(x, y)]


@program()
def out_arguments(C):
    def f(x):
        b = torch.empty(3)
        with torch.no_grad():
            torch.mul(x, 2, out=b)
        return x * b

    x = leaf(3)
    o = C(f)(x)
    o.sum().backward()
    return [o, x.grad]


@program()
def relu_in_place_modules(C):
    m = torch.nn.Sequential(
        torch.nn.Linear(4, 5),
        torch.nn.ReLU(inplace=True),
        torch.nn.Linear(5, 3),
        torch.nn.ReLU6(inplace=True),
    )
    x = leaf(2, 4)
    y = C(m)(x)
    y.pow(2).sum().backward()
    return [y, x.grad, grads(m)]


@program()
def data_attribute(C):
    def f(x):
        return x * x.data

    x = leaf(3)
    y = C(f)(x)
    y.sum().backward()
    return [y, x.grad]


# ---- breaks ----


@program(graphs=2, joint=2, breaks=1)
def gradients_across_a_break(C):
    def f(x, w):
        h = (x @ w).tanh()
        print(end="")
        return h @ w

    x, w = leaf(3, 3), leaf(3, 3)
    y = C(f)(x, w)
    y.sum().backward()
    return [y, grads(x, w)]


@program(graphs=None)
def gradients_across_data_dependent_branches(C):
    def f(x):
        h = x.sin()
        if h.sum() > 0:
            h = h * 2
        else:
            h = h.exp()
        return h.cos()

    res = []
    f = C(f)
    for s in (1.0, -1.0, 1.0):
        x = torch.full((3,), s).requires_grad_()
        y = f(x)
        y.sum().backward()
        res += [y, x.grad]
    return res


@program(graphs=None)
def gradients_across_a_loop_with_breaks(C):
    def f(x, w):
        for i in range(4):
            x = torch.tanh(x @ w)
            print(end="")
        return x

    x, w = leaf(3, 3), leaf(3, 3)
    y = C(f)(x, w)
    y.sum().backward()
    return [y, grads(x, w)]


@program(graphs=None)
def item_in_the_middle(C):
    def f(x):
        s = (x * 2).sum()
        return x * s.item() + s

    x = leaf(3)
    y = C(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program(graphs=None)
def broken_inplace_on_intermediate(C):
    def f(x):
        h = x.exp()
        print(end="")
        h.mul_(2)
        return h + 1

    x = leaf(3)
    y = C(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program(graphs=None)
def broken_view_of_intermediate(C):
    def f(x):
        h = x.exp()
        v = h[1:]
        print(end="")
        v.mul_(2)
        return h * 1

    x = leaf(3)
    y = C(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program(graphs=2, joint=2)
def two_compiled_functions_in_a_row(C):
    f, g = C(lambda x: (x * 2).sin()), C(lambda y: y.exp().sum())
    x = leaf(3)
    y = g(f(x) + 1)
    y.backward()
    return [y, x.grad]


@program()
def one_function_called_twice(C):
    f = C(lambda x, w: (x @ w).tanh())
    x, w = leaf(3, 3), leaf(3, 3)
    y = f(f(x, w), w)
    y.sum().backward()
    return [y, grads(x, w)]


@pytest.mark.parametrize("name", program.programs)
def test_program(name):
    program.check(name)
