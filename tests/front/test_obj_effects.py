"""Side effects: replayed in program order, with identity and aliasing kept; modules, hooks, buffers, torch's global state."""

import pytest

import obj_harness

PROGRAMS = obj_harness.parse(r"""
=== dict_past_a_data_descriptor
class Field:
    def __set__(self, o, v): o.__dict__['field'] = o.__dict__.get('field', 0) + v * 2
    def __delete__(self, o): del o.__dict__['field']
class C:
    field = Field()
c = C(); c.field = 1; d = C(); d.field = 1
def f(x): c.field = 10; del d.field; y = x + c.field; d.field = 3; return y
S = lambda: (c.__dict__, d.__dict__)
=== attributes_of_results
def f(x):
    y = x + 1; y.tag = 'a'; y.other = x * 2; z = y * len(y.tag) + y.other; del y.tag; y.tag = (y.shape[0], z)
    return y, y.tag, y.other, hasattr(y, 'nope'), y.__dict__['tag'] is y.tag
=== copies_of_older_sets
import copy
A = {1, 2}; B = [{3}, (4, {5})]
def f(x): a = copy.deepcopy(A); b = copy.deepcopy(B); c = copy.copy(A); a.add(7); b[0].add(8); return x + len(a), a, b, c
S = lambda: (A, B)
=== named_results
def f(x): r = torch.return_types.max((x.max(), x.argmax())); return r, torch.max(x, 0), r.values + 1
=== globals_call
N = 0
def f(x):
    globals()['N'] = N + 1; g = globals(); y = x * g['N'] + g.get('Q', 5); ok = 'N' in g; g['Z'] = x; del g['Z']
    return y, ok, N, 'Z' in globals(), g.setdefault('K', 3)
S = lambda: (N, K)
=== module_dict
import types
M = types.ModuleType('mm'); M.k = 1
def f(x):
    d = M.__dict__; d['k'] = d['k'] + 1; M.z = x; y = vars(M)['k'] + getattr(M, 'k'); setattr(M, 'w', 2); del M.z
    return x * y + M.w, hasattr(M, 'z'), 'k' in M.__dict__
S = lambda: (M.k, M.w)
=== dict_behind_a_property
class C:
    @property
    def v(self): return self.__dict__['v'] * 10
    @property
    def w(self): return 'w' in self.__dict__
c = C(); c.__dict__['v'] = 1; c.__dict__['w'] = 2
def f(x):
    d = c.__dict__; d['v'] = d['v'] + 1
    if 'w' in d: del d['w']
    n = C(); n.__dict__['v'] = x
    return x * c.v, c.w, n.v, n
S = lambda: (c.__dict__, c.v, c.w)
=== mapping_proxy
import types
P = {'a': 1}
def f(x):
    own = {'k': 2}; p = types.MappingProxyType(own); q = types.MappingProxyType(P); own['z'] = 1
    return p, dict(p), x * p['k'] + q['a'], [k for k in iter(p).__iter__()], [1, 2].__iter__().__iter__().__next__(), iter((3, x)).__iter__()
=== function_globals
G = 1
def h(): return G
def f(x): h.__globals__['G'] = G + 1; return x * h() + G
S = lambda: G
=== context_var
import contextvars
V = contextvars.ContextVar('V', default=1); W = contextvars.ContextVar('W')
W.set(5)
def f(x):
    a = V.get(); t = V.set(a + 1); b = V.get(); u = W.set(x); c = W.get() + b; W.reset(u); return c, W.get(), V.get(), V.name
S = lambda: (V.get(), W.get())
=== context_var_guard
import contextvars
V = contextvars.ContextVar('V', default=1)
def f(x): return x * V.get()
def between(): V.set(V.get() + 1)
=== order_of_effects
log = []
class C:
    def __setattr__(self, n, v): log.append(n); object.__setattr__(self, n, v)
c = C(); D = {}; N = 0
def f(x):
    global N
    c.a = 1; log.append('m'); D['k'] = len(log); N = N + D['k']; c.b = x; log.extend(['e', N]); return x * N
S = lambda: (log, D, N, c.a)
=== inplace_inputs
def ARGS(): return torch.ones(4), torch.zeros(4)
def f(a, b):
    a.add_(1); b[1:3] = a[:2] * 2; v = a.view(2, 2); v.mul_(3); a[0] = 9; b.copy_(b + v.reshape(-1)); return a.sum() + b, v
=== inplace_alias_args
def ARGS():
    t = torch.ones(4); return t, t.view(2, 2), t[1:]
def f(a, b, c): b.mul_(2); c.add_(1); return a + 0, b.sum(), c * a[1:]
=== inplace_global_and_buffer
T = torch.ones(3); L = [torch.zeros(3)]
def f(x): T.add_(x); L[0].sub_(T); T[0] = 5; L.append(T * 2); return T + L[0] + L[-1]
S = lambda: (T, L)
=== identity_kept
def ARGS():
    t = torch.ones(3); return t, [t], {'t': t}
def f(a, l, d):
    l.append(a); d['u'] = l; b = a + 1; d['b'] = b; l.append(b); return a, l, d, l[0] is a, d['b'] is l[2]
g = f
def f(a, l, d): r = g(a, l, d); return r[0] is a, r[1] is l, r[2]['u'] is l, r[2]['b'] is l[2], l
=== returns_input_and_view
def ARGS(): return torch.ones(2, 3),
def f(a): return a, a.t(), a[0], [a, a]
g = f
def f(a): r = g(a); r[1].add_(1); return r[0] is a, r[3][0] is r[3][1], a, r[2]
=== tensor_attrs
T = torch.ones(3); T.tag = 'x'; T.n = 0
def f(x): T.n += 1; T.extra = x * 2; x.mine = T.n; return T.extra * T.n + x.mine, T.tag, hasattr(T, 'nope')
S = lambda: (T.n, T.extra)
=== requires_grad_inside
def f(x):
    y = x.clone().requires_grad_(); z = (y * 2).sum(); return z, y.requires_grad, z.requires_grad
=== print_middle breaks=1 graphs=2
def f(x): y = x + 1; print('hello', 3); return y * 2
=== print_tensor breaks=1
def f(x): y = x + 1; print(y); return y * 2
=== logging_disabled breaks=1
import logging
L = logging.getLogger('obj_test'); L.setLevel(logging.ERROR)
def f(x): L.info('nothing %s', 1); L.debug('x'); return x + 1, L.isEnabledFor(logging.DEBUG)
=== logging_enabled breaks=1
import logging
class H(logging.Handler):
    out = []
    def emit(self, r): self.out.append(r.getMessage())
L = logging.getLogger('obj_test2'); L.setLevel(logging.INFO); L.propagate = False; L.addHandler(H())
def f(x): L.info('v %s', 1); return x + 1
S = lambda: H.out
=== warn breaks=1
import warnings
def f(x): warnings.warn('careful'); return x + 1
=== warn_catch breaks=1
import warnings
def f(x):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore'); y = x + 1; warnings.warn('q')
    return y
=== random_reads breaks=1
import random
random.seed(3)
def f(x): return x * random.random() + random.randint(1, 5)
S = lambda: random.random()
=== time_reads breaks=1
import time
def f(x): t = time.time(); y = x + 1; return y, time.time() >= t, time.perf_counter() > 0
=== environ
import os
os.environ['OBJ_T'] = '2'
def f(x): return x * int(os.environ['OBJ_T']), os.environ.get('OBJ_NOPE', 'd'), 'OBJ_T' in os.environ, os.getenv('OBJ_T')
def between(): os.environ['OBJ_T'] = str(int(os.environ['OBJ_T']) + 1)
=== environ_write breaks=1
import os
def f(x): os.environ['OBJ_W'] = '1'; return x + 1, os.environ['OBJ_W']
S = lambda: os.environ.get('OBJ_W')
=== default_dtype_inside
def f(x):
    torch.set_default_dtype(torch.float64); y = torch.zeros(3); torch.set_default_dtype(torch.float32); return x + y, torch.zeros(2).dtype, torch.get_default_dtype()
=== default_dtype_left
def f(x): torch.set_default_dtype(torch.float64); return torch.zeros(3) + x
def between(): torch.set_default_dtype(torch.float32)
S = lambda: torch.get_default_dtype()
=== python_module_setattr
import types
class Config(types.ModuleType):
    def __setattr__(self, k, v): super().__setattr__('writes', vars(self).get('writes', 0) + 1); super().__setattr__(k, v)
    def __delattr__(self, k): super().__delattr__(k); super().__setattr__('gone', k)
c, m = Config('c'), types.ModuleType('m')
def f(x):
    c.k = vars(c).get('k', 1) * 2; c.t = x; del c.t
    types.ModuleType.__setattr__(m, 'n', getattr(m, 'n', 0) + 1); m.z = m.n
    return x * c.k * c.writes, m.n
S = lambda: (c.k, c.writes, c.gone, m.n, m.z)
=== deterministic_inside
def f(x):
    torch.use_deterministic_algorithms(True); a = torch.are_deterministic_algorithms_enabled(); y = x + 1; torch.use_deterministic_algorithms(False, warn_only=True); return y, a, torch.are_deterministic_algorithms_enabled()
S = lambda: torch.are_deterministic_algorithms_enabled()
=== deterministic_left
def f(x): torch.use_deterministic_algorithms(True, warn_only=True); return x + 1
S = lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
def between(): torch.use_deterministic_algorithms(False)
=== threads_inside breaks=1
def f(x): n = torch.get_num_threads(); torch.set_num_threads(1); y = x + 1; torch.set_num_threads(n); return y, torch.get_num_threads() == n
=== default_device_inside
def f(x):
    with torch.device('cpu'): y = torch.ones(3)
    return x + y
=== inference_mode_inside graphs=1
def f(x):
    with torch.inference_mode(): y = x + 1; a = torch.is_inference_mode_enabled()
    return a, torch.is_inference_mode_enabled(), y
=== inference_mode_left breaks=1
M = torch.inference_mode()
def f(x): M.__enter__(); y = x + 1; print('in', torch.is_inference_mode_enabled()); M.__exit__(None, None, None); return y * 2, torch.is_inference_mode_enabled()
=== inference_mode_abandoned breaks=1
def g(x):
    with torch.inference_mode(): print('a'); return x * 2
def f(x): return g(x) + 1, torch.is_inference_mode_enabled()
=== inference_mode_decorator graphs=1
@torch.inference_mode()
def g(x): return x * 2
def f(x): y = g(x); return y, y.requires_grad, torch.is_inference_mode_enabled(), torch.is_grad_enabled()
=== grad_modes
def f(x):
    with torch.no_grad():
        a = torch.is_grad_enabled(); y = x + 1
        with torch.enable_grad(): b = torch.is_grad_enabled()
    with torch.set_grad_enabled(False): c = torch.is_grad_enabled()
    return y, a, b, c, torch.is_grad_enabled()
=== autocast_inside
def f(x):
    with torch.autocast('cpu', dtype=torch.bfloat16): y = x.view(1, 3) @ torch.ones(3, 2)
    return y, torch.is_autocast_enabled('cpu')
=== module_basic_containers
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seq = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
        self.ml = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(3)]); self.md = torch.nn.ModuleDict({'a': torch.nn.Tanh(), 'b': torch.nn.Linear(3, 3)})
        self.pl = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(3)) for _ in range(2)]); self.pd = torch.nn.ParameterDict({'w': torch.nn.Parameter(torch.ones(3))})
        self.register_buffer('buf', torch.ones(3)); self.register_parameter('none', None)
    def forward(self, x):
        for l in self.ml: x = l(x)
        for i, l in enumerate(self.ml[1:]): x = l(x) * i
        for k, v in self.md.items(): x = v(x) + len(k)
        x = self.seq[0](x) + self.seq[-1](x) + self.seq[:2](x) + self.ml[-1](x) + self.md['a'](x)
        for p in self.pl: x = x + p
        x = x + self.pd['w'] + self.pl[0] + len(self.ml) + len(self.md) + len(self.pl) + ('a' in self.md) + self.buf
        n = [k for k, _ in self.named_parameters()]; m = [k for k, _ in self.named_modules()]; c = [type(t).__name__ for t in self.children()]
        return x, n, m, c, [k for k, _ in self.named_children()], [k for k, _ in self.named_buffers()], len(list(self.parameters())), self.none, list(self.md.keys()), list(self.pd.keys()), len(self.seq), isinstance(self.ml, torch.nn.ModuleList), self.get_parameter('pl.0').shape, self.get_submodule('seq.0').in_features, self.training
m = M()
def f(x): return m(x)
=== module_state_changes
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.n = 0; self.hist = []; self.d = {}; self.register_buffer('b', torch.zeros(3)); self.p = torch.nn.Parameter(torch.ones(3)); self.t = torch.zeros(3)
    def forward(self, x):
        self.n += 1; self.hist.append(self.n); self.d['k'] = x; self.b += x; self.b = self.b * 2; self.t = self.t + x; self.last = x * self.n
        return self.b * self.p.detach() + self.last
m = M()
def f(x): return m(x)
S = lambda: (m.n, m.hist, m.d, m.b, m.t, m.last, list(m._buffers), 'last' in vars(m))
=== register_in_forward breaks=1
class M(torch.nn.Module):
    def forward(self, x):
        if not hasattr(self, 'b'):
            self.register_buffer('b', x + 1); self.lin = torch.nn.Linear(3, 3); torch.nn.init.ones_(self.lin.weight); torch.nn.init.zeros_(self.lin.bias)
            self.register_buffer('np', torch.ones(3), persistent=False)
        return self.lin(x + self.b).detach() + self.np
m = M()
def f(x): return m(x)
S = lambda: (list(m.state_dict()), m.b)
=== training_switch
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.drop = torch.nn.Dropout(0.5); self.bn = torch.nn.BatchNorm1d(3)
    def forward(self, x): return self.bn(self.drop(x)) if self.training else self.bn(x) * 2
m = M(); c = [0]
def ARGS(): return torch.randn(4, 3),
def f(x): return m(x)
def between(): c[0] += 1; m.train(c[0] % 2 == 0)
S = lambda: (m.bn.running_mean, m.bn.num_batches_tracked)
=== train_eval_inside
m = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3)); m.eval()
def ARGS(): return torch.randn(4, 3),
def f(x): m.train(); a = m[1](x); m.eval(); return a, m(x), m.training, m[0].training
S = lambda: (m.training, m[1].running_mean)
=== hooks_before
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()); log = []
torch.nn.init.ones_(m[0].weight); torch.nn.init.zeros_(m[0].bias)
m.register_forward_hook(lambda mod, i, o: o * 2); m[0].register_forward_pre_hook(lambda mod, i: (i[0] + 1,)); m[0].register_forward_hook(lambda mod, i, o: log.append(o.shape[0]))
m[1].register_forward_hook(lambda mod, a, k, o: o + len(k), with_kwargs=True); m.register_forward_pre_hook(lambda mod, a, k: (a, k), with_kwargs=True)
m[1].register_forward_hook(lambda mod, i, o: o - 1, always_call=True)
def f(x): return m(x)
S = lambda: log
=== hooks_inside
m = torch.nn.Linear(3, 3); torch.nn.init.ones_(m.weight); torch.nn.init.zeros_(m.bias); log = []
def f(x):
    h = m.register_forward_hook(lambda mod, i, o: o * 2); y = m(x); h.remove(); return y + m(x), len(m._forward_hooks)
S = lambda: len(m._forward_hooks)
=== hooks_captured
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()); acts = {}
torch.nn.init.ones_(m[0].weight); torch.nn.init.zeros_(m[0].bias)
def save(n):
    def hook(mod, i, o): acts[n] = o.detach()
    return hook
for n, c in m.named_children(): c.register_forward_hook(save(n))
def f(x): return m(x), sorted(acts)
S = lambda: acts
=== global_hooks
m = torch.nn.ReLU(); log = []
def f(x): return m(x)
import torch.nn.modules.module as mm
h = mm.register_module_forward_hook(lambda mod, i, o: log.append(type(mod).__name__))
def S():
    return log
def between(): h.remove()
=== lazy_modules breaks=1
m = torch.nn.LazyLinear(2)
def f(x): y = m(x); return y.shape, type(m).__name__, m.in_features
=== weight_norm
from torch.nn.utils import parametrizations as P
torch.manual_seed(0); m = P.weight_norm(torch.nn.Linear(3, 3)); k = P.spectral_norm(torch.nn.Linear(3, 3)); k.eval(); o = torch.nn.Linear(3, 3)
class Sym(torch.nn.Module):
    def forward(self, w): return w + w.t()
torch.nn.utils.parametrize.register_parametrization(o, 'weight', Sym())
def f(x): return m(x), k(x), o(x), torch.nn.utils.parametrize.is_parametrized(o)
=== old_weight_norm
import warnings
with warnings.catch_warnings():
    warnings.simplefilter('ignore'); torch.manual_seed(0); m = torch.nn.utils.weight_norm(torch.nn.Linear(3, 3)); k = torch.nn.utils.spectral_norm(torch.nn.Linear(3, 3))
k.eval()
def f(x):
    with torch.no_grad(): return m(x), k(x)
=== functional_call
m = torch.nn.Linear(3, 3); torch.manual_seed(0)
def f(x): return torch.func.functional_call(m, {'weight': torch.ones(3, 3), 'bias': x}, (x,))
S = lambda: m.weight.shape
=== functional_call_nested
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)); m.eval()
def ARGS(): return torch.ones(2, 3),
def f(x):
    p = {k: v.detach() * 0 + 1 for k, v in m.named_parameters()}; b = dict(m.named_buffers()); return torch.func.functional_call(m, (p, b), x)
=== module_getattr_override
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.inner = torch.nn.ReLU()
    def __getattr__(self, n):
        try: return super().__getattr__(n)
        except AttributeError: return getattr(super().__getattr__('inner'), n)
m = M()
def f(x): return m.inner(x) + 1, m.inplace, hasattr(m, 'zzz')
=== module_call_override
class M(torch.nn.Module):
    def __call__(self, x, k=2): return super().__call__(x) * k
    def forward(self, x): return x + 1
m = M()
def f(x): return m(x) + m(x, k=3)
=== module_setattr_override
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.v = 1
    def __setattr__(self, n, v): super().__setattr__(n, v * 2 if n == 'v' else v)
    def forward(self, x): self.v = self.v; return x * self.v
m = M()
def f(x): return m(x)
S = lambda: m.v
=== module_apply_and_state_dict
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)); seen = []
def f(x):
    m.apply(lambda t: seen.append(type(t).__name__)); sd = m.state_dict(); return x + sd['0.weight'].sum().detach() * 0, list(sd)
S = lambda: len(seen)
=== module_iter_params_norm
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
def f(x):
    s = sum(p.detach().pow(2).sum() * 0 + p.numel() for p in m.parameters()); return x * s, {k: v.shape for k, v in m.named_parameters()}, [type(c).__name__ for c in m.modules()]
=== module_created_inside
def f(x):
    m = torch.nn.ReLU(); s = torch.nn.Sequential(m, torch.nn.Identity()); return s(x) + m(x)
=== module_container_mutation
m = torch.nn.ModuleList([torch.nn.ReLU()]); d = torch.nn.ModuleDict(); s = torch.nn.Sequential()
def f(x):
    m.append(torch.nn.Tanh()); d['k' + str(len(d))] = m[0]; s.append(torch.nn.Identity()); m.insert(0, torch.nn.Sigmoid()); m[0] = torch.nn.ReLU()
    for l in m: x = l(x)
    return s(x) * len(m), list(d.keys()), len(s)
S = lambda: ([type(t).__name__ for t in m], list(d.keys()), len(s))
=== param_replaced_inside
m = torch.nn.Linear(3, 3); torch.nn.init.ones_(m.weight); torch.nn.init.zeros_(m.bias)
def f(x):
    with torch.no_grad(): m.weight.mul_(2); m.bias.copy_(x); m.weight[0] = 1
    return m(x).detach()
S = lambda: (m.weight, m.bias)
=== submodule_swapped
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.a = torch.nn.ReLU(); self.b = torch.nn.Tanh()
    def forward(self, x): self.a, self.b = self.b, self.a; return self.a(x)
m = M()
def f(x): return m(x)
S = lambda: type(m.a).__name__
=== cached_mask
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.cache = {}; self.mask = None
    def forward(self, x):
        n = x.shape[0]
        if n not in self.cache: self.cache[n] = torch.tril(torch.ones(n, n))
        if self.mask is None or self.mask.shape[0] < n: self.mask = torch.arange(n)
        return (self.cache[n] @ x) + self.mask[:n]
m = M()
def f(x): return m(x)
S = lambda: (m.cache, m.mask)
=== kv_cache_class
class Cache:
    def __init__(self): self.k = [None, None]; self.seen = 0
    def update(self, k, i):
        self.k[i] = k if self.k[i] is None else torch.cat([self.k[i], k]); self.seen += (i == 0) * k.shape[0]; return self.k[i]
c = Cache()
def f(x):
    for i in range(2): x = x + c.update(x, i)[-3:]
    return x * c.seen
S = lambda: (c.k, c.seen)
=== counter_module_tutorial
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.count = 0
    def forward(self, x): self.count += 1; return x * self.count
m = M()
def f(x): return m(x)
S = lambda: m.count
=== del_module_attrs
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.register_buffer('b', torch.ones(3))
    def forward(self, x): self.tmp = x * 2; y = self.tmp + self.b; del self.tmp; return y
m = M()
def f(x): return m(x)
S = lambda: sorted(vars(m))
=== memo_decorator
memo = {}
def cached(fn):
    def w(n):
        if n not in memo: memo[n] = fn(n)
        return memo[n]
    return w
@cached
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def f(x): return x * fib(6)
S = lambda: memo
=== effects_then_exception
log = []; D = {}
def f(x):
    log.append(1); D['a'] = x + 1
    if x.shape[0] == 3: raise ValueError('stop')
    return x
S = lambda: (log, D)
=== effects_caught_exception
log = []
def g(x): log.append('g'); x.add_(1); raise KeyError('k')
def f(x):
    try: g(x)
    except KeyError: log.append('caught')
    finally: log.append('fin')
    return x * 2
S = lambda: log
=== nested_cells_shared
def mk():
    a = 0; t = torch.zeros(3)
    def inc(x):
        nonlocal a, t
        a += 1; t = t + x; return t * a
    def get(): return a, t
    return inc, get
i, g = mk()
def f(x): return i(x) + i(x) + g()[0]
S = lambda: g()
=== global_function_replaced
def h(x): return x + 1
def k(x): return x * 10
def f(x):
    global h
    y = h(x); h = k; return y + h(x)
S = lambda: h is k
=== dict_of_views
T = torch.zeros(4); V = {'v': T[1:3]}
def f(x): V['v'].add_(1); T.mul_(2); V['w'] = T.view(2, 2); return T + V['v'].sum(), V['w']
S = lambda: (T, V['v'])
=== list_default_grow
def g(v, acc=[]): acc.append(v); return acc
def f(x): return x * len(g(1)) + len(g(2))
S = lambda: g.__defaults__
=== rng_state breaks=1
def f(x): torch.manual_seed(5); a = torch.rand(3); s = torch.get_rng_state() if False else 0; b = torch.randn(3); return a + b + x
S = lambda: torch.rand(2)
=== formatting_guarded
class C: name = 'n'
c = C(); c.v = 3
def f(x): s = '{0.v} {0.name}'.format(c); c.v += 1; t = f'{c.v}'; return x * len(s) + int(t), s, t
S = lambda: c.v
=== sorted_attrgetter
import operator
class C:
    def __init__(self, n): self.n = n
    def get(self, k=0): return self.n + k
L = [C(3), C(1), C(2)]
def f(x):
    L[0].n += 10; a = sorted(L, key=operator.attrgetter('n')); b = max(L, key=operator.methodcaller('get', k=1)); L.sort(key=operator.attrgetter('n')); return x * a[0].n + b.n, [c.n for c in L], operator.attrgetter('n', 'get')(L[0])[0]
S = lambda: [c.n for c in L]
=== from_numpy_changes breaks=1
import numpy as np
a = np.ones(3, dtype=np.float32)
def f(x): y = torch.from_numpy(a) + x; z = torch.as_tensor(a) * 2; w = torch.tensor(a); return y + z + w
def between(): a[0] += 1
=== numpy_scalar_guard
import numpy as np
c = [np.float32(2)]
def f(x): return x * float(c[0]), torch.full((2,), c[0].item())
def between(): c[0] = np.float32(c[0] + 1)
=== dir_sees_writes
class C: pass
c = C(); c.a = 1
def f(x): c.b = x; n = [k for k in dir(c) if k[0] != '_']; del c.a; c.a = 2; return x * len(n), n, [k for k in sorted(c.__dir__()) if k[0] != '_']
=== vars_alias
class C: pass
c = C(); c.a = 1
def f(x): d = vars(c); d['a'] += 1; c.b = d['a']; e = dict(d); e['z'] = 1; return x * c.a + d['b'], sorted(e), d is c.__dict__
S = lambda: vars(c)
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    obj_harness.check(PROGRAMS[name])


@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("name", PROGRAMS)
def test_forced_breaks(name, k):
    obj_harness.check_forced(PROGRAMS[name], k)
