"""Programs about objects: modules: their state, hooks, parameters, buffers.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)


# === module_basic_containers
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seq = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
        self.ml = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(3)])
        self.md = torch.nn.ModuleDict({"a": torch.nn.Tanh(), "b": torch.nn.Linear(3, 3)})
        self.pl = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(3)) for _ in range(2)])
        self.pd = torch.nn.ParameterDict({"w": torch.nn.Parameter(torch.ones(3))})
        self.register_buffer("buf", torch.ones(3))
        self.register_parameter("none", None)

    def forward(self, x):
        for l in self.ml:
            x = l(x)
        for i, l in enumerate(self.ml[1:]):
            x = l(x) * i
        for k, v in self.md.items():
            x = v(x) + len(k)
        x = self.seq[0](x) + self.seq[-1](x) + self.seq[:2](x) + self.ml[-1](x) + self.md["a"](x)
        for p in self.pl:
            x = x + p
        x = (
            x
            + self.pd["w"]
            + self.pl[0]
            + len(self.ml)
            + len(self.md)
            + len(self.pl)
            + ("a" in self.md)
            + self.buf
        )
        n = [k for k, _ in self.named_parameters()]
        m = [k for k, _ in self.named_modules()]
        c = [type(t).__name__ for t in self.children()]
        return (
            x,
            n,
            m,
            c,
            [k for k, _ in self.named_children()],
            [k for k, _ in self.named_buffers()],
            len(list(self.parameters())),
            self.none,
            list(self.md.keys()),
            list(self.pd.keys()),
            len(self.seq),
            isinstance(self.ml, torch.nn.ModuleList),
            self.get_parameter("pl.0").shape,
            self.get_submodule("seq.0").in_features,
            self.training,
        )


m = M()


def f(x):
    return m(x)


# === module_state_changes
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0
        self.hist = []
        self.d = {}
        self.register_buffer("b", torch.zeros(3))
        self.p = torch.nn.Parameter(torch.ones(3))
        self.t = torch.zeros(3)

    def forward(self, x):
        self.n += 1
        self.hist.append(self.n)
        self.d["k"] = x
        self.b += x
        self.b = self.b * 2
        self.t = self.t + x
        self.last = x * self.n
        return self.b * self.p.detach() + self.last


m = M()


def f(x):
    return m(x)


S = lambda: (m.n, m.hist, m.d, m.b, m.t, m.last, list(m._buffers), "last" in vars(m))


# === register_in_forward breaks=1
class M(torch.nn.Module):
    def forward(self, x):
        if not hasattr(self, "b"):
            self.register_buffer("b", x + 1)
            self.lin = torch.nn.Linear(3, 3)
            torch.nn.init.ones_(self.lin.weight)
            torch.nn.init.zeros_(self.lin.bias)
            self.register_buffer("np", torch.ones(3), persistent=False)
        return self.lin(x + self.b).detach() + self.np


m = M()


def f(x):
    return m(x)


S = lambda: (list(m.state_dict()), m.b)


# === training_switch
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)
        self.bn = torch.nn.BatchNorm1d(3)

    def forward(self, x):
        return self.bn(self.drop(x)) if self.training else self.bn(x) * 2


m = M()
c = [0]


def ARGS():
    return (torch.randn(4, 3),)


def f(x):
    return m(x)


def between():
    c[0] += 1
    m.train(c[0] % 2 == 0)


S = lambda: (m.bn.running_mean, m.bn.num_batches_tracked)


# === train_eval_inside
m = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3))
m.eval()


def ARGS():
    return (torch.randn(4, 3),)


def f(x):
    m.train()
    a = m[1](x)
    m.eval()
    return a, m(x), m.training, m[0].training


S = lambda: (m.training, m[1].running_mean)


# === hooks_before
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
log = []
torch.nn.init.ones_(m[0].weight)
torch.nn.init.zeros_(m[0].bias)
m.register_forward_hook(lambda mod, i, o: o * 2)
m[0].register_forward_pre_hook(lambda mod, i: (i[0] + 1,))
m[0].register_forward_hook(lambda mod, i, o: log.append(o.shape[0]))
m[1].register_forward_hook(lambda mod, a, k, o: o + len(k), with_kwargs=True)
m.register_forward_pre_hook(lambda mod, a, k: (a, k), with_kwargs=True)
m[1].register_forward_hook(lambda mod, i, o: o - 1, always_call=True)


def f(x):
    return m(x)


S = lambda: log


# === hooks_inside
m = torch.nn.Linear(3, 3)
torch.nn.init.ones_(m.weight)
torch.nn.init.zeros_(m.bias)
log = []


def f(x):
    h = m.register_forward_hook(lambda mod, i, o: o * 2)
    y = m(x)
    h.remove()
    return y + m(x), len(m._forward_hooks)


S = lambda: len(m._forward_hooks)


# === hooks_captured
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
acts = {}
torch.nn.init.ones_(m[0].weight)
torch.nn.init.zeros_(m[0].bias)


def save(n):
    def hook(mod, i, o):
        acts[n] = o.detach()

    return hook


for n, c in m.named_children():
    c.register_forward_hook(save(n))


def f(x):
    return m(x), sorted(acts)


S = lambda: acts


# === global_hooks
m = torch.nn.ReLU()
log = []


def f(x):
    return m(x)


import torch.nn.modules.module as mm

h = mm.register_module_forward_hook(lambda mod, i, o: log.append(type(mod).__name__))


def S():
    return log


def between():
    h.remove()


# === lazy_modules breaks=1
m = torch.nn.LazyLinear(2)


def f(x):
    y = m(x)
    return y.shape, type(m).__name__, m.in_features


# === weight_norm
from torch.nn.utils import parametrizations as P

torch.manual_seed(0)
m = P.weight_norm(torch.nn.Linear(3, 3))
k = P.spectral_norm(torch.nn.Linear(3, 3))
k.eval()
o = torch.nn.Linear(3, 3)


class Sym(torch.nn.Module):
    def forward(self, w):
        return w + w.t()


torch.nn.utils.parametrize.register_parametrization(o, "weight", Sym())


def f(x):
    return m(x), k(x), o(x), torch.nn.utils.parametrize.is_parametrized(o)


# === old_weight_norm
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    m = torch.nn.utils.weight_norm(torch.nn.Linear(3, 3))
    k = torch.nn.utils.spectral_norm(torch.nn.Linear(3, 3))
k.eval()


def f(x):
    with torch.no_grad():
        return m(x), k(x)


# === functional_call
m = torch.nn.Linear(3, 3)
torch.manual_seed(0)


def f(x):
    return torch.func.functional_call(m, {"weight": torch.ones(3, 3), "bias": x}, (x,))


S = lambda: m.weight.shape


# === functional_call_nested
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
m.eval()


def ARGS():
    return (torch.ones(2, 3),)


def f(x):
    p = {k: v.detach() * 0 + 1 for k, v in m.named_parameters()}
    b = dict(m.named_buffers())
    return torch.func.functional_call(m, (p, b), x)


# === module_getattr_override
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.ReLU()

    def __getattr__(self, n):
        try:
            return super().__getattr__(n)
        except AttributeError:
            return getattr(super().__getattr__("inner"), n)


m = M()


def f(x):
    return m.inner(x) + 1, m.inplace, hasattr(m, "zzz")


# === module_call_override
class M(torch.nn.Module):
    def __call__(self, x, k=2):
        return super().__call__(x) * k

    def forward(self, x):
        return x + 1


m = M()


def f(x):
    return m(x) + m(x, k=3)


# === module_setattr_override
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.v = 1

    def __setattr__(self, n, v):
        super().__setattr__(n, v * 2 if n == "v" else v)

    def forward(self, x):
        self.v = self.v
        return x * self.v


m = M()


def f(x):
    return m(x)


S = lambda: m.v


# === module_apply_and_state_dict
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
seen = []


def f(x):
    m.apply(lambda t: seen.append(type(t).__name__))
    sd = m.state_dict()
    return x + sd["0.weight"].sum().detach() * 0, list(sd)


S = lambda: len(seen)


# === module_iter_params_norm
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))


def f(x):
    s = sum(p.detach().pow(2).sum() * 0 + p.numel() for p in m.parameters())
    return x * s, {k: v.shape for k, v in m.named_parameters()}, [type(c).__name__ for c in m.modules()]


# === module_created_inside
def f(x):
    m = torch.nn.ReLU()
    s = torch.nn.Sequential(m, torch.nn.Identity())
    return s(x) + m(x)


# === module_container_mutation
m = torch.nn.ModuleList([torch.nn.ReLU()])
d = torch.nn.ModuleDict()
s = torch.nn.Sequential()


def f(x):
    m.append(torch.nn.Tanh())
    d["k" + str(len(d))] = m[0]
    s.append(torch.nn.Identity())
    m.insert(0, torch.nn.Sigmoid())
    m[0] = torch.nn.ReLU()
    for l in m:
        x = l(x)
    return s(x) * len(m), list(d.keys()), len(s)


S = lambda: ([type(t).__name__ for t in m], list(d.keys()), len(s))


# === param_replaced_inside
m = torch.nn.Linear(3, 3)
torch.nn.init.ones_(m.weight)
torch.nn.init.zeros_(m.bias)


def f(x):
    with torch.no_grad():
        m.weight.mul_(2)
        m.bias.copy_(x)
        m.weight[0] = 1
    return m(x).detach()


S = lambda: (m.weight, m.bias)


# === submodule_swapped
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.ReLU()
        self.b = torch.nn.Tanh()

    def forward(self, x):
        self.a, self.b = self.b, self.a
        return self.a(x)


m = M()


def f(x):
    return m(x)


S = lambda: type(m.a).__name__


# === cached_mask
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = {}
        self.mask = None

    def forward(self, x):
        n = x.shape[0]
        if n not in self.cache:
            self.cache[n] = torch.tril(torch.ones(n, n))
        if self.mask is None or self.mask.shape[0] < n:
            self.mask = torch.arange(n)
        return (self.cache[n] @ x) + self.mask[:n]


m = M()


def f(x):
    return m(x)


S = lambda: (m.cache, m.mask)


# === kv_cache_class
class Cache:
    def __init__(self):
        self.k = [None, None]
        self.seen = 0

    def update(self, k, i):
        self.k[i] = k if self.k[i] is None else torch.cat([self.k[i], k])
        self.seen += (i == 0) * k.shape[0]
        return self.k[i]


c = Cache()


def f(x):
    for i in range(2):
        x = x + c.update(x, i)[-3:]
    return x * c.seen


S = lambda: (c.k, c.seen)


# === counter_module_tutorial
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 0

    def forward(self, x):
        self.count += 1
        return x * self.count


m = M()


def f(x):
    return m(x)


S = lambda: m.count


# === del_module_attrs
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.ones(3))

    def forward(self, x):
        self.tmp = x * 2
        y = self.tmp + self.b
        del self.tmp
        return y


m = M()


def f(x):
    return m(x)


S = lambda: sorted(vars(m))
