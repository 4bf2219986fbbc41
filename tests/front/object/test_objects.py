"""Objects older than the recording: each program runs eagerly and compiled in its own namespace; results, printed text and
the state that the program leaves behind must agree over four calls, with and without forced breaks."""

import contextlib
import copy
import inspect
import io
import itertools

import pytest
import torch

import magneto
from magneto import _magneto
from support import counts

# Each program defines f(x), S() (its state) and maybe between() (what happens outside between two calls).
PROGRAMS = dict(
    default_mut="""
def g(x, acc=[]): acc.append(1); return x*len(acc)
def f(x): return g(x)
S=lambda: g.__defaults__""",
    class_list="""
class C: items=[]
def f(x): C.items.append(len(C.items)); return x*len(C.items)
S=lambda: C.items""",
    global_dict="""
D={}
def f(x):
    k=tuple(x.shape)
    if k not in D: D[k]=x*2
    return D.get(k)+1
S=lambda: D""",
    global_int="""
N=0
def f(x): return x*N
def between():
    global N; N+=1
S=lambda: N""",
    global_store="""
N=0
def f(x):
    global N; N+=1; return x*N
S=lambda: N""",
    global_delete="""
N=0
def f(x):
    global N, Z
    Z=3; y=x*Z; del Z
    N+=2
    return y*N
S=lambda: (N, 'Z' in globals())""",
    nonlocal_old="""
def mk():
    n=1
    def h(x):
        nonlocal n; n+=1; return x*n
    return h
h=mk()
def f(x): return h(x)
S=lambda: h.__closure__[0].cell_contents""",
    two_closures="""
def mk(k):
    def h(x): return x*k
    return h
hs=[mk(2), mk(5)]
n=[0]
def f(x): return hs[n[0]%2](x)
def between(): n[0]+=1
S=lambda: n""",
    lru="""
import functools
K=2
@functools.lru_cache
def p(n): return n*K
@functools.lru_cache
def q(t): return t*2
def f(x): return x*p(3)+q(x)
S=lambda: 0""",
    map_print="""
def f(x): list(map(print,[1,2])); return x+1
S=lambda: 0""",
    partial_print="""
import functools
P=functools.partial(print,'hey')
def f(x): P(1); return x+1
S=lambda: 0""",
    partial_fn="""
import functools
def g(a,b,c=1): return a*b+c
P=functools.partial(g,c=4)
def f(x): return P(x,2)+functools.partial(g,x)(3)
S=lambda: 0""",
    deque_="""
import collections
Q=collections.deque(maxlen=2); DD=collections.defaultdict(int); CT=collections.Counter()
def f(x): Q.append(1); DD['a']+=1; CT['b']+=2; return x*len(Q)+DD['a']
S=lambda: (list(Q),dict(DD),dict(CT))""",
    set_="""
Z=set()
def f(x): Z.add(len(Z)); return x*len(Z)
S=lambda: sorted(Z)""",
    mod_attr="""
import types
M=types.ModuleType('mm'); M.k=1
class C: k=1
def f(x): M.k+=1; C.k+=2; return x*M.k+C.k
S=lambda: (M.k,C.k)""",
    slots="""
class C:
    __slots__=('a','b')
    def __init__(s): s.a=1; s.b=None
c=C()
def f(x): c.a+=1; c.b=x*c.a; return c.b
S=lambda: (c.a,)""",
    copy_="""
import copy
import inspect
class C: pass
c=C(); c.l=[1]; c.t=torch.ones(3)
def f(x): d=copy.copy(c); d.l.append(2); e=copy.deepcopy(c.l); e.append(5); return x*len(c.l)+d.t+len(e)
S=lambda: (c.l,c.t)""",
    dataclass_="""
import dataclasses
@dataclasses.dataclass
class C:
    t: object; n: int=0
c=C(torch.ones(3))
def f(x): d=dataclasses.replace(c,n=c.n+1); c.n+=1; return d.t*x+d.n
S=lambda: (c.n,)""",
    prop_set="""
class C:
    v=0
    @property
    def p(s): return s._p
    @p.setter
    def p(s,x): s._p=x; s.v+=1
c=C()
def f(x): c.p=x*2; return c.p+c.v
S=lambda: (c.v,)""",
    rand="""
import random
random.seed(0)
def f(x): return x*random.random()
S=lambda: 0""",
    lock="""
import threading
L=threading.Lock(); n=[0]
def f(x):
    with L: n[0]+=1; y=x*n[0]
    return y
S=lambda: (L.locked(),n)""",
    buf="""
class M(torch.nn.Module):
    def __init__(s): super().__init__(); s.register_buffer('b',torch.zeros(3)); s.k=0; s.w=torch.nn.Parameter(torch.ones(3))
    def forward(s,x): s.b=s.b+x; s.k+=1; s.last=x; s.b.mul_(2); return s.b*s.k*s.w
m=M()
def f(x): return m(x)
S=lambda: (m.b,m.k,m.last)""",
    hooks="""
m=torch.nn.Linear(3,3); torch.manual_seed(1); torch.nn.init.normal_(m.weight); torch.nn.init.zeros_(m.bias); cnt=[0]
m.register_forward_hook(lambda mod,i,o: o*2); m.register_forward_pre_hook(lambda mod,i: (i[0]+1,))
def f(x): return m(x)
def between(): m.register_forward_hook(lambda mod,i,o: o+1)
S=lambda: 0""",
    late_hook="""
m=torch.nn.Linear(3,3); torch.nn.init.ones_(m.weight); torch.nn.init.zeros_(m.bias); n=[0]
def f(x): return m(x)
def between():
    n[0]+=1
    if n[0]==2: m.register_forward_hook(lambda mod,i,o: o+1)
S=lambda: 0""",
    param_change="""
m=torch.nn.Linear(3,3); torch.nn.init.ones_(m.weight); torch.nn.init.zeros_(m.bias)
def f(x): return m(x)
def between(): m.weight.data=torch.full((m.weight.shape[0]+1,3),2.); m.bias=None
S=lambda: 0""",
    vars_="""
class C: pass
c=C()
def f(x): vars(c)['z']=x*1; c.__dict__.update(q=1); setattr(c,'n',getattr(c,'n',0)+1); object.__setattr__(c,'o',3); return c.z*c.n+c.o
S=lambda: (c.z,c.q,c.n,c.o)""",
    del_attr="""
class C: pass
c=C(); c.a=1
def f(x):
    c.t=x*2; y=c.t+c.a; del c.t
    return y*(2 if hasattr(c,'t') else 3)
S=lambda: vars(c)""",
    type_is="""
P=torch.nn.Parameter(torch.ones(3))
def f(x): return x*(1 if type(x) is torch.Tensor else 2)*(3 if type(P) is torch.nn.Parameter else 4)*(5 if isinstance(P,torch.nn.Parameter) else 6)*(7 if x.__class__ is torch.Tensor else 8)
S=lambda: 0""",
    hash_="""
T=torch.ones(3); D={T:5}
def f(x): return x*D[T]*(2 if T in D else 3)
S=lambda: 0""",
    ident="""
T=torch.ones(3); U=T
def f(x): return x*(2 if T is U else 3)
def between():
    global U; U=torch.ones(3)
S=lambda: 0""",
    alias_arg="""
def f(x): return h(x,x)
def h(a,b): a.add_(1); return a*b
S=lambda: 0""",
    warn="""
import warnings, logging
def f(x): warnings.warn('w'); logging.getLogger('q').info('z'); return x+1
S=lambda: 0""",
    exc="""
log=[]
def g(x):
    try:
        try: raise ValueError('a')
        finally: log.append('f')
    except ValueError as e: log.append(str(e)); raise KeyError('k') from e
def f(x):
    try: g(x)
    except KeyError as e: log.append(repr(e.__cause__)); return x+len(log)
S=lambda: log""",
    sortkey="""
L=[3,1,2]
def f(x): L.sort(key=lambda v:-v); return x*L[0]+sum(sorted(L,key=lambda v:v)[:1])
S=lambda: L""",
    namedt="""
import collections, enum
NT=collections.namedtuple('NT','a b')
class E(enum.Enum): A=1; B=2
def f(x): n=NT(x,x*2); m=n._replace(b=x); return n, m.b*(1 if E(2) is E.B else 2)
S=lambda: 0""",
    metac="""
class Meta(type):
    def __call__(cls,*a): o=super().__call__(*a); o.made=len(a); return o
    def __getattr__(cls,n): return 5
class C(metaclass=Meta):
    def __init__(s,a): s.a=a
    def __len__(s): return 4
    def __iter__(s): yield s.a; yield s.a*2
    def __contains__(s,k): return k==3
    def __getitem__(s,i): return s.a*i
    def __call__(s,*,z): return s.a+z
    def __enter__(s): return s.a
    def __exit__(s,*e): return True
    def __bool__(s): return False
    def __hash__(s): return 3
    def __eq__(s,o): return True
def f(x):
    c=C(x); a,b=c
    with c as q: q=q+1; raise ValueError
    return a+b+len(c)+c[3]+c(z=2)+c.made+C.zzz+(1 if c else 2)+(3 in c)+{c:9}[c], q
S=lambda: 0""",
    getattr_hook="""
class C:
    def __init__(s): s.d={'u':3}
    def __getattr__(s,n):
        try: return s.__dict__['d'][n]
        except KeyError: raise AttributeError(n)
c=C()
def f(x): return x*c.u*(2 if hasattr(c,'v') else 5)*getattr(c,'w',7)
def between(): c.d['u']+=1
S=lambda: c.d""",
    getattribute="""
class C:
    k=2
    def __getattribute__(s,n):
        if n=='magic': return 11
        return object.__getattribute__(s,n)
c=C(); c.z=1
def f(x): c.z+=1; return x*c.magic*c.k*c.z
S=lambda: c.z""",
    descriptor="""
class D:
    def __init__(s,n): s.n=n; s.reads=0
    def __get__(s,o,t): s.reads+=1; return o.base*s.n
class C:
    a=D(2); b=D(3)
    def __init__(s,base): s.base=base
c=C(4)
def f(x): return x*c.a+c.b
S=lambda: (C.__dict__['a'].reads, C.__dict__['b'].reads)""",
    inspect_="""
import inspect, functools
def g(a,b=2,*c,d=3,**e): return a*b
@functools.wraps(g)
def w(*a,**k): s=inspect.signature(g); b=s.bind(*a,**k); return g(*b.args,**b.kwargs)*len(s.parameters)
def f(x): return w(x,b=4)
S=lambda: 0""",
    gradmode="""
@torch.no_grad()
def g(x): return x*2
def f(x):
    torch.set_grad_enabled(False); y=g(x); e=torch.is_grad_enabled(); torch.set_grad_enabled(True)
    with torch.enable_grad(): z=y+1
    return z,e,torch.is_grad_enabled()
S=lambda: torch.is_grad_enabled()""",
    gradmode_left="""
def f(x): torch.set_grad_enabled(False); return x*2
def between(): torch.set_grad_enabled(True)
S=lambda: torch.is_grad_enabled()""",
    npy="""
import numpy as np
A=np.arange(3.)
def f(x): y=x+torch.from_numpy(A); A[0]+=1; return y*float(np.sqrt(4))
S=lambda: A.tolist()""",
    strcache="""
import re
R=re.compile('a(.)')
def f(x): return x*len(R.sub('b','abacad'))*int(re.match('([0-9]+)x','12x').group(1))
S=lambda: 0""",
    kwbind="""
def g(a,/,b,*c,d=4,**e): return a*b+sum(c)+d+sum(e.values())
def f(x):
    try: g(x)
    except TypeError as e: m=str(e)
    return g(x,2,3,d=5,q=6),g(*[x,1],**{'d':2}),m
S=lambda: 0""",
    classdef="""
def f(x):
    class L:
        k=3
        def m(s,y): return y*s.k
    return L().m(x)
S=lambda: 0""",
    disabled="""
n=[0]
@torch.compiler.disable
def g(x): n[0]+=1; return x*2
def f(x): return g(x+1)+1
S=lambda: n""",
    older_dict_subclass="""
class D(dict): pass
d=D(a=2,b=3)
def f(x): return x*d['a']*len(d)+d.get('b')+('c' in d)
def between(): d['b']+=1
S=lambda: dict(d)""",
    order="""
import collections
d=collections.OrderedDict(a=1,b=2)
def f(x): d.move_to_end('a'); d['z']=len(d); return x*list(d.values())[0]
S=lambda: list(d.items())""",
    container_subclasses="""
import collections
class D(dict):
    def __iter__(s): raise RuntimeError
    def total(s): return sum(v for v in s.values() if isinstance(v,int))
class L(list):
    def __len__(s): return 100
class O(collections.OrderedDict): pass
d=D(a=2,b=3); d.note='n'; l=L([1,2]); l.k=[7]; o=O(x=1,y=2)
def f(x):
    d['c']=d['a']+1; d.note+='m'; l.append(d.total()); l.k.append(len(l)); o.move_to_end('x'); o['z']=x*2
    return x*d['c']+l[-1]+len(d.note)+o['z']
S=lambda: (list(dict.items(d)), d.note, list.copy(l), l.k, list(o.items()))""",
    default_dicts="""
import collections
DD=collections.defaultdict(list); CT=collections.Counter('aab')
def f(x): DD['k'].append(len(DD)); CT['b']+=2; CT.update('zz'); return x*len(DD['k'])+CT['z']+CT['missing']
S=lambda: (dict(DD), dict(CT), DD.default_factory)""",
    output_object="""
import collections, dataclasses
@dataclasses.dataclass
class Out(collections.OrderedDict):
    a: object=None
    b: object=None
    def __post_init__(s):
        for f in dataclasses.fields(s):
            if getattr(s,f.name) is not None: collections.OrderedDict.__setitem__(s,f.name,getattr(s,f.name))
    def __setattr__(s,n,v):
        if n in s.keys(): super().__setitem__(n,v)
        super().__setattr__(n,v)
def inner(o): o.a=o.a*2; return o
def f(x): return inner(Out(a=x,b=[x+1]))
def between(): pass
S=lambda: 0""",
    cached_property="""
import functools
class C:
    n=0
    @functools.cached_property
    def k(s): s.n+=1; return 3
    @functools.cached_property
    def t(s): return torch.ones(3)*s.n
c=C()
def f(x): return x*c.k*c.n+c.t+C().k
S=lambda: (c.n, sorted(vars(c)))""",
    enum_arg="""
import enum
class E(enum.Enum): A=1; B=2
v=[E.A]
def f(x): return x*(2 if v[0] is E.A else 3)*v[0].value
def between(): v[0]=E.B
S=lambda: 0""",
    slots_path="""
class C:
    __slots__=('t','k')
def mk(x): c=C(); c.t=x; c.k=3; return c
def f(x): return g(mk(x))
def g(c): c.k+=1; return c.t*c.k
S=lambda: 0""",
    modlist="""
m=torch.nn.Sequential(torch.nn.Linear(3,3), torch.nn.ReLU(), torch.nn.ModuleList([torch.nn.Identity()])[0])
torch.nn.init.ones_(m[0].weight); torch.nn.init.zeros_(m[0].bias)
def f(x):
    for l in m: x=l(x)
    return x*len(m)+sum(p.sum() for p in m.parameters())
S=lambda: 0""",
    global_iter="""
IT=iter([1,2,3,4,5,6,7,8])
def f(x): return x*next(IT)
S=lambda: list(IT)""",
    count="""
import itertools
C=itertools.count()
def f(x): return x*next(C)
S=lambda: next(C)""",
    copy="""
import copy
import inspect
class C: pass
c=C(); c.l=[1]; c.t=torch.ones(3);
def f(x): d=copy.copy(c); d.l.append(2); e=copy.deepcopy(c); e.l.append(5); e.t.add_(1); return x*len(c.l)+d.t+e.t
S=lambda: (c.l,c.t)""",
    dataclass="""
import dataclasses
@dataclasses.dataclass
class C:
    t: object; n: int=0
c=C(torch.ones(3))
def f(x): d=dataclasses.replace(c,n=c.n+1); c.n+=1; a=dataclasses.asdict(d)['n']; return d.t*x+a
S=lambda: (c.n,)""",
    retfin="""
def g(x):
    for i in range(3):
        try:
            if i==1: return x*i
        finally: x=x+1
def f(x): return g(x)
S=lambda: 0""",
    genext="""
G=(i for i in range(10))
def f(x): return x*next(G)+sum([next(G)])
S=lambda: next(G)""",
    genobj="""
def gen(x):
    for i in range(3): y=yield x*i; x=x+(y or 0)
def f(x):
    g=gen(x); a=next(g); b=g.send(2); r=[a,b]; r.extend(g); return r
S=lambda: 0""",
    yieldfrom="""
def inner(x): yield x; yield x+1; return 7
def outer(x): r=yield from inner(x); yield x*r
def f(x): return list(outer(x))
S=lambda: 0""",
    ctxvar="""
import contextvars
V=contextvars.ContextVar('V',default=1)
def f(x): t=V.set(V.get()+1); y=x*V.get(); V.reset(t); V.set(V.get()+10); return y
S=lambda: V.get()""",
    weakd="""
import weakref
class K: pass
k=K(); W=weakref.WeakKeyDictionary()
def f(x): W[k]=W.get(k,0)+1; return x*W[k]
S=lambda: list(W.values())""",
    dyn_code="""
def f(x):
    ns={}; y=eval('2+3'); exec('z=4',ns); return x*y*ns['z']
S=lambda: 0""",
)

# Reading their state ends it (iterators, generators): looked at after the last call only.
CONSUMED = {"global_iter", "count", "genext"}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and type(a) is type(b)
            and a.shape == b.shape
            and torch.allclose(a, b, atol=1e-6)
        )
    if isinstance(a, (list, tuple)):
        return type(a).__name__ == type(b).__name__ and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b


def run(name, compiled):
    torch.set_grad_enabled(True)
    space, out = {"torch": torch}, []
    exec(PROGRAMS[name], space)
    f = magneto.compile(space["f"]) if compiled else space["f"]
    for i in range(4):
        torch.manual_seed(i)
        x, text = torch.randn(3), io.StringIO()
        with contextlib.redirect_stdout(text):
            try:
                r = f(x)
            except Exception as e:
                r = repr(e)
        state = copy.deepcopy(space["S"]()) if name not in CONSUMED or i == 3 else None
        out.append((r, state, text.getvalue(), x))
        space.get("between", lambda: 0)()
    torch.set_grad_enabled(True)
    return out


def check(name):
    want, got = run(name, False), run(name, True)
    for i, (a, b) in enumerate(zip(want, got)):
        assert same(a, b), f"call {i}: eager {a}, compiled {b}"


@pytest.fixture(autouse=True)
def clean():
    _magneto.reset()
    yield
    _magneto.force_break(0)
    _magneto.reset()


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    check(name)
    assert counts().fallbacks == 0


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("name", PROGRAMS)
def test_forced_breaks(name, k):
    _magneto.force_break(k)
    check(name)


class Bare:
    pass


def errors_know_names(x, pause):
    seen = []
    try:
        nothing_of_that_name  # noqa: B018
    except NameError as e:
        pause()
        seen.append(e.name)
    o = Bare()
    for ask in (
        lambda: o.missing,
        lambda: getattr(o, "missing"),
        lambda: Bare.missing,
        lambda: torch.missing,
    ):
        try:
            ask()
        except AttributeError as e:
            pause()
            seen += [e.name, e.obj is o]
    return x + 1, seen


@pytest.mark.parametrize(
    "pause", [lambda: None, lambda: torch._dynamo.graph_break()], ids=["whole", "broken"]
)
def test_errors_know_what_was_asked(pause):
    x = torch.rand(3)
    want, got = errors_know_names(x, pause), magneto.compile(errors_know_names)(x, pause)
    assert torch.equal(want[0], got[0]) and want[1] == got[1]


class Annotated:
    def __call__(self, x, mask: torch.Tensor | None = None, names: list[int] = ()):
        return x * 2


def test_signature_with_annotations():
    def f(x, **kw):
        known = inspect.signature(of.__call__).parameters
        return of(x, **{k: v for k, v in kw.items() if k in known}) + len(known)

    of = Annotated()
    g = magneto.compile(f, fullgraph=True)
    for _ in range(2):
        assert torch.equal(g(torch.ones(2), mask=None, other=1), f(torch.ones(2), mask=None, other=1))


class CountsInstances(type):
    made = 0

    def __call__(cls, *args):
        cls.made += 1
        return super().__call__(*args)


def test_clean_up_code_of_generators_does_not_run_when_a_recording_fails():
    def f(log):
        class Made(metaclass=CountsInstances):  # cannot be made again by a run
            pass

        def outer():
            def inner():
                try:
                    yield 1
                finally:
                    log.append("end")

            it = inner()
            log.append(next(it))
            magneto.graph_break()
            yield 2

        return sorted(itertools.chain(outer(), [Made().made]))

    log, want = [], []
    assert magneto.compile(f)(log) == f(want) and log == want


class MakesClasses(type):
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda space: type.__new__(type, "N", (), space),
        lambda space: type.__call__(type, "T", (), space),
        lambda space: type.__call__(MakesClasses, "M", (), space),
    ],
    ids=["new", "call", "metaclass"],
)
def test_classes_that_type_makes_hold_the_numbers_of_each_call(make):
    assert (
        type(magneto.compile(lambda: object.__new__(Annotated))()) is Annotated
    )  # all __new__ of C share one method definition
    c, seen = magneto.compile(make), []
    for n in range(1000, 1005):
        seen.append(c({"b": n}))
        assert [k.__dict__["b"] for k in seen] == [*range(1000, n + 1)]


def test_classes_of_several_metaclasses_hold_numbers_that_change():
    class Made(type):
        def __new__(meta, name, bases, space):
            return super().__new__(meta, name, bases, {**space, "made": space["b"] + 1})

    def f(x, n):
        space = {"b": n}
        kinds = [
            type("A", (), dict(space)),
            type.__new__(type, "B", (), dict(space)),
            Made("C", (), dict(space)),
            MakesClasses("D", (), dict(space)),
        ]
        return kinds, x + n

    c, x = magneto.compile(f), torch.ones(2)
    made = [c(x, n) for n in range(1000, 1006)]
    for n, (kinds, y) in enumerate(made, 1000):
        assert [k.__dict__["b"] for k in kinds] == [n] * 4 and kinds[2].made == n + 1 and kinds[2]().b == n
        assert [type(k) for k in kinds] == [type, type, type(kinds[2]), MakesClasses] and torch.equal(
            y, x + n
        )


def test_suspended_generators_end_where_they_go_out_of_use():
    log = []

    def make(n):
        try:
            while True:
                yield n
                n += 1
        finally:
            log.append("end")

    def f(x):
        a, b = make(1), make(2)
        next(a), next(b)

        def drop():
            nonlocal b
            b = None
            log.append("cell")

        print(end="")
        a = None
        log.append("stored")
        drop()
        for i in make(0):
            print(end="")
            if i > 1:
                break
        log.append("left")
        c = make(3)
        next(c)
        print(end="")
        del c
        log.append("deleted")
        return x + 1

    c = magneto.compile(f)
    for _ in range(3):
        log.clear()
        assert c(torch.ones(3)).tolist() == [2, 2, 2]
        assert log == ["end", "stored", "end", "cell", "end", "left", "end", "deleted"]


class Keeps:
    __slots__ = ("slot", "__dict__")


def keeps_generators(x, o, items, table, log):
    def make(name):
        try:
            while True:
                yield name
        finally:
            log.append(name)

    def started(name):
        it = make(name)
        next(it)
        return it

    def until_return(y):
        for _ in itertools.islice(make("iterated"), 1):
            print(end="")
        it = started("local")
        print(end="")
        log.append("returns")
        return y + len(it.__name__)

    global kept_generator
    o.attr, o.slot, items[0], table["k"], kept_generator = map(
        started, ["attr", "slot", "item", "value", "global"]
    )
    print(end="")
    o.attr = None
    log.append("attribute")
    del o.slot
    log.append("member")
    items[0] = None
    log.append("list")
    del table["k"]
    log.append("dict")
    kept_generator = None
    log.append("namespace")
    x = until_return(x)
    log.append("frame")
    for _ in itertools.islice(make("dropped"), 5):
        print(end="")
        break
    log.append("loop")
    return x + 1, list(log)


def test_generators_end_where_their_owner_lets_them_go():
    c = magneto.compile(keeps_generators)
    want = keeps_generators(torch.ones(3), Keeps(), [0], {}, [])[1]
    for _ in range(3):
        y, got = c(torch.ones(3), Keeps(), [0], {}, [])
        assert got == want and y.tolist() == [6, 6, 6]


class Tells:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def __del__(self):
        self.log.append(self.name)


def test_finalizers_run_where_an_attribute_changes():
    def f(x, o, log):
        o.attr = None
        log.append("attribute")
        o.slot = None
        log.append("member")
        return x + 1, list(log)

    c = magneto.compile(f)
    for _ in range(3):
        o, log = Keeps(), []
        o.attr, o.slot = Tells(log, "attr"), Tells(log, "slot")
        assert c(torch.ones(3), o, log)[1] == ["attr", "attribute", "slot", "member"]
