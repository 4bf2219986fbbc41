"""Programs about objects: hooks, parametrizations, gradients, exceptions half way.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)

# === hook_kwargs
m = torch.nn.Linear(3, 3)
log = []


class K(torch.nn.Module):
    def forward(self, x, s=1.0):
        return x * s


k = K()


def pre(mod, args, kw):
    log.append("pre")
    return args, {**kw, "s": kw.get("s", 1.0) * 2}


def post(mod, args, kw, out):
    log.append(sorted(kw))
    return out + kw["s"]


k.register_forward_pre_hook(pre, with_kwargs=True)
k.register_forward_hook(post, with_kwargs=True)
k.register_forward_pre_hook(lambda mod, a: (a[0] + 1,), prepend=True)


def f(x):
    return k(x, s=3.0), k(x)


S = lambda: log


# === deprecated_functions
from typing_extensions import deprecated


@deprecated("use g", category=FutureWarning)
def old(x):
    return x.sin()


@deprecated("use D")
class C:
    def __init__(self, n):
        self.n = n


def f(x):
    return old(x) + C(2).n


# === hook_removed_inside
m = torch.nn.ReLU()
log = []


def h(mod, a, o):
    log.append(1)
    hd.remove()
    return o * 2


hd = m.register_forward_hook(h)


def f(x):
    return m(x) + m(x)


S = lambda: (log, len(m._forward_hooks))


# === hook_registered_inside
m = torch.nn.ReLU()
log = []


def f(x):
    hd = m.register_forward_hook(lambda mod, a, o: o + 1)
    y = m(x)
    hd.remove()
    return y + m(x)


S = lambda: len(m._forward_hooks)


# === hook_counts
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
acts = {}
n = [0]


def mk(name):
    def h(mod, a, o):
        acts[name] = o.detach()
        n[0] += 1

    return h


for k, c in m.named_children():
    c.register_forward_hook(mk(k))


def f(x):
    return m(x).detach()


S = lambda: (list(acts), n, [a.shape for a in acts.values()])


# === backward_hooks breaks=1
m = torch.nn.Linear(3, 2)
log = []
m.register_full_backward_hook(lambda mod, gi, go: log.append(go[0].sum().item()))


def f(x):
    y = m(x)
    y.sum().backward()
    return y.detach(), log[-1]


# === tensor_hook_inside breaks=1
log = []


def f(x):
    y = x.clone().requires_grad_()
    y.register_hook(lambda g: g * 2)
    z = (y * 3).sum()
    z.backward()
    return y.grad


# === tensor_hook_before_break breaks=1
def f(x):
    y = x.clone().requires_grad_()
    y.register_hook(lambda g: g * 2)
    print("a")
    z = (y * 3).sum()
    print("b")
    z.backward()
    return y.grad


# === tensor_hook_on_argument breaks=1
def ARGS():
    return (torch.ones(3, requires_grad=True),)


def f(y):
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: g + 1)
    (y * 3).sum().backward()
    return y.grad, len(y._backward_hooks)


# === accumulate_hook_on_argument breaks=1
log = []


def ARGS():
    return (torch.ones(3, requires_grad=True),)


def f(y):
    y.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.sum().item()))
    (y * 3).sum().backward()
    return y.grad


S = lambda: log


# === freeze_in_forward breaks=1
m = torch.nn.Linear(3, 3)


def f(x):
    for p in m.parameters():
        p.requires_grad_(False)
    return m(x), [p.requires_grad for p in m.parameters()]


def between():
    m.requires_grad_(True)


S = lambda: [p.requires_grad for p in m.parameters()]


# === parametrize
import torch.nn.utils.parametrize as P


class Sym(torch.nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).t()


m = torch.nn.Linear(3, 3)
P.register_parametrization(m, "weight", Sym())


def f(x):
    return m(x).detach(), P.is_parametrized(m), m.weight.shape


# === parametrize_cached
import torch.nn.utils.parametrize as P


class D(torch.nn.Module):
    def forward(self, X):
        return X * 2


m = torch.nn.Linear(3, 3)
P.register_parametrization(m, "weight", D())


def f(x):
    with P.cached():
        return (m(x) + m(x)).detach()


# === spectral_norm
m = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(3, 3))


def f(x):
    return m(x).detach()


S = lambda: [b for b in m.buffers()]


# === orthogonal breaks=1
m = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(3, 3))


def f(x):
    return m(x).detach()


# === grad_assign
p = torch.nn.Parameter(torch.ones(3))


def f(x):
    p.grad = x * 2
    y = p.grad + 1
    return y, p.grad is not None


S = lambda: p.grad


# === grad_of_leaf_made_here breaks=1
L = []


def f(x):
    w = torch.ones(3, requires_grad=True)
    m = torch.nn.Linear(3, 1, bias=False)
    ((w * x).sum() + m(x).sum()).backward()
    L.append(w)
    print("a")
    return w.grad, m.weight.grad


S = lambda: [w.grad for w in L]


# === grad_of_returned_leaf
L = []


def f(x):
    w = torch.ones(3, requires_grad=True)
    (w * x).sum().backward()
    L.append(w)
    v = torch.ones(3, requires_grad=True)
    v.grad = x * 2
    return w, v


S = lambda: [w.grad for w in L]


# === grad_clear
p = torch.nn.Parameter(torch.ones(3))
p.grad = torch.ones(3)


def f(x):
    a = p.grad * x
    p.grad = None
    return a, p.grad is None


def between():
    p.grad = torch.full((3,), 2.0)


S = lambda: p.grad


# === grad_inplace
p = torch.nn.Parameter(torch.ones(3))
p.grad = torch.ones(3)


def f(x):
    p.grad.add_(x)
    p.grad.zero_() if x.shape[0] == 5 else p.grad.mul_(2)
    return p.grad + 1


S = lambda: p.grad


# === data_assign breaks=1
p = torch.nn.Parameter(torch.ones(3))


def f(x):
    p.data = p.data + x
    return (p * 2).detach()


S = lambda: p


# === data_inplace
p = torch.nn.Parameter(torch.ones(3))


def f(x):
    p.data.add_(x)
    p.data[0] = 7
    p.detach().mul_(2)
    return (p * 2).detach()


S = lambda: p


# === no_grad_param_update
p = torch.nn.Parameter(torch.ones(3))


def f(x):
    with torch.no_grad():
        p.add_(x)
        p[1] = 4
        p.copy_(p * 2)
    return p.detach() + 0


S = lambda: p


# === requires_grad_outer breaks=1
p = torch.ones(3)


def f(x):
    p.requires_grad_(True)
    y = p * x
    p.requires_grad_(False)
    return y.detach()


S = lambda: p.requires_grad


# === set_grad_enabled_left
def f(x):
    y = x * 2
    torch.set_grad_enabled(False)
    return y


S = lambda: torch.is_grad_enabled()


# === set_grad_roundtrip
def f(x):
    p = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    a = x * 2
    torch.set_grad_enabled(p)
    return a, torch.is_grad_enabled()


# === exception_half
L = []
D = {}
T = torch.zeros(3)


def f(x):
    L.append(1)
    D["a"] = x
    T.add_(x)
    raise ValueError("half %d" % len(L))


S = lambda: (L, D, T)


# === exception_half_module
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0
        self.register_buffer("b", torch.zeros(3))

    def forward(self, x):
        self.n += 1
        self.b.add_(x)
        if self.n == 2:
            raise KeyError("two")
        return x * self.n


m = M()


def f(x):
    return m(x)


S = lambda: (m.n, m.b)


# === exception_in_callee_caught
L = []


def g(x, k):
    L.append(k)
    if k == 1:
        raise RuntimeError("k")
    return x * k


def f(x):
    r = []
    for k in range(3):
        try:
            r.append(g(x, k))
        except RuntimeError as e:
            r.append(str(e))
            L.append("c")
        finally:
            L.append("f")
    return r


S = lambda: L
