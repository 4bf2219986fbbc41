"""Programs that hide state where a recorder may miss it: each source defines f, and S for the state to compare."""

CASES = {
    "default_mut": r"""
def g(x,acc=[]): acc.append(1); return x*len(acc)
def f(x): return g(x)
S=lambda: g.__defaults__
""",
    "class_list": r"""
class C: items=[]
def f(x): C.items.append(len(C.items)); return x*len(C.items)
S=lambda: C.items
""",
    "global_dict": r"""
D={}
def f(x): 
    k=tuple(x.shape)
    if k not in D: D[k]=x*2
    return D.get(k)+1
S=lambda: D
""",
    "global_int": r"""
N=0
def f(x): return x*N
def between():
    global N; N+=1
S=lambda: N
""",
    "global_store": r"""
N=0
def f(x):
    global N; N+=1; return x*N
S=lambda: N
""",
    "nonlocal_old": r"""
def mk():
    n=1
    def h(x):
        nonlocal n; n+=1; return x*n
    return h
h=mk()
def f(x): return h(x)
S=lambda: h.__closure__[0].cell_contents
""",
    "lru": r"""
import functools
K=2
@functools.lru_cache
def p(n): return n*K
@functools.lru_cache
def q(t): return t*2
def f(x): return x*p(3)+q(x)
S=lambda: 0
""",
    "map_print": r"""
def f(x): list(map(print,[1,2])); return x+1
S=lambda: 0
""",
    "partial_print": r"""
import functools
P=functools.partial(print,'hey')
def f(x): P(1); return x+1
S=lambda: 0
""",
    "global_iter": r"""
IT=iter([1,2,3,4,5,6,7,8])
def f(x): return x*next(IT)
S=lambda: list(IT)
""",
    "count": r"""
import itertools
C=itertools.count()
def f(x): return x*next(C)
S=lambda: next(C)
""",
    "deque": r"""
import collections
Q=collections.deque(maxlen=2); DD=collections.defaultdict(int); CT=collections.Counter()
def f(x): Q.append(1); DD['a']+=1; CT['b']+=2; return x*len(Q)+DD['a']
S=lambda: (list(Q),dict(DD),dict(CT))
""",
    "set": r"""
Z=set()
def f(x): Z.add(len(Z)); return x*len(Z)
S=lambda: sorted(Z)
""",
    "mod_attr": r"""
import types
M=types.ModuleType('mm'); M.k=1
class C: k=1
def f(x): M.k+=1; C.k+=2; return x*M.k+C.k
S=lambda: (M.k,C.k)
""",
    "slots": r"""
class C:
    __slots__=('a','b')
    def __init__(s): s.a=1; s.b=None
c=C()
def f(x): c.a+=1; c.b=x*c.a; return c.b
S=lambda: (c.a,)
""",
    "copy": r"""
import copy
class C: pass
c=C(); c.l=[1]; c.t=torch.ones(3); 
def f(x): d=copy.copy(c); d.l.append(2); e=copy.deepcopy(c); e.l.append(5); e.t.add_(1); return x*len(c.l)+d.t+e.t
S=lambda: (c.l,c.t)
""",
    "dataclass": r"""
import dataclasses
@dataclasses.dataclass
class C: 
    t: object; n: int=0
c=C(torch.ones(3))
def f(x): d=dataclasses.replace(c,n=c.n+1); c.n+=1; a=dataclasses.asdict(d)['n']; return d.t*x+a
S=lambda: (c.n,)
""",
    "prop_set": r"""
class C:
    v=0
    @property
    def p(s): return s._p
    @p.setter
    def p(s,x): s._p=x; s.v+=1
c=C()
def f(x): c.p=x*2; return c.p+c.v
S=lambda: (c.v,)
""",
    "rand": r"""
import random
random.seed(0)
def f(x): return x*random.random()
S=lambda: 0
""",
    "lock": r"""
import threading
L=threading.Lock(); n=[0]
def f(x):
    with L: n[0]+=1; y=x*n[0]
    return y
S=lambda: (L.locked(),n)
""",
    "buf": r"""
class M(torch.nn.Module):
    def __init__(s): super().__init__(); s.register_buffer('b',torch.zeros(3)); s.k=0; s.w=torch.nn.Parameter(torch.ones(3))
    def forward(s,x): s.b=s.b+x; s.k+=1; s.last=x; s.b.mul_(2); return s.b*s.k*s.w
m=M()
def f(x): return m(x)
S=lambda: (m.b,m.k,m.last)
""",
    "hooks": r"""
m=torch.nn.Linear(3,3); torch.manual_seed(1); torch.nn.init.normal_(m.weight); torch.nn.init.zeros_(m.bias); cnt=[0]
m.register_forward_hook(lambda mod,i,o: o*2); m.register_forward_pre_hook(lambda mod,i: (i[0]+1,))
def f(x): return m(x)
def between(): m.register_forward_hook(lambda mod,i,o: o+1)
S=lambda: 0
""",
    "param_change": r"""
m=torch.nn.Linear(3,3); torch.nn.init.ones_(m.weight); torch.nn.init.zeros_(m.bias)
def f(x): return m(x)
def between(): m.weight.data=torch.full((m.weight.shape[0]+1,3),2.); m.bias=None
S=lambda: 0
""",
    "vars": r"""
class C: pass
c=C()
def f(x): vars(c)['z']=x*1; c.__dict__.update(q=1); setattr(c,'n',getattr(c,'n',0)+1); object.__setattr__(c,'o',3); return c.z*c.n+c.o
S=lambda: (c.z,c.q,c.n,c.o)
""",
    "type_is": r"""
P=torch.nn.Parameter(torch.ones(3))
def f(x): return x*(1 if type(x) is torch.Tensor else 2)*(3 if type(P) is torch.nn.Parameter else 4)*(5 if isinstance(P,torch.nn.Parameter) else 6)*(7 if x.__class__ is torch.Tensor else 8)
S=lambda: 0
""",
    "hash": r"""
T=torch.ones(3); D={T:5}
def f(x): return x*D[T]*(2 if T in D else 3)
S=lambda: 0
""",
    "ident": r"""
T=torch.ones(3); U=T
def f(x): return x*(2 if T is U else 3)
def between():
    global U; U=torch.ones(3)
S=lambda: 0
""",
    "alias_arg": r"""
def f(x): return h(x,x)
def h(a,b): a.add_(1); return a*b
S=lambda: 0
""",
    "warn": r"""
import warnings, logging
def f(x): warnings.warn('w'); logging.getLogger('q').info('z'); return x+1
S=lambda: 0
""",
    "exc": r"""
log=[]
def g(x):
    try:
        try: raise ValueError('a')
        finally: log.append('f')
    except ValueError as e: log.append(str(e)); raise KeyError('k') from e
def f(x):
    try: g(x)
    except KeyError as e: log.append(repr(e.__cause__)); return x+len(log)
S=lambda: log
""",
    "retfin": r"""
def g(x):
    for i in range(3):
        try:
            if i==1: return x*i
        finally: x=x+1
def f(x): return g(x)
S=lambda: 0
""",
    "genext": r"""
G=(i for i in range(10))
def f(x): return x*next(G)+sum([next(G)])
S=lambda: next(G)
""",
    "genobj": r"""
def gen(x):
    for i in range(3): y=yield x*i; x=x+(y or 0)
def f(x):
    g=gen(x); a=next(g); b=g.send(2); r=[a,b]; r.extend(g); return r
S=lambda: 0
""",
    "yieldfrom": r"""
def inner(x): yield x; yield x+1; return 7
def outer(x): r=yield from inner(x); yield x*r
def f(x): return list(outer(x))
S=lambda: 0
""",
    "sortkey": r"""
L=[3,1,2]
def f(x): L.sort(key=lambda v:-v); return x*L[0]+sum(sorted(L,key=lambda v:v)[:1])
S=lambda: L
""",
    "namedt": r"""
import collections, enum
NT=collections.namedtuple('NT','a b')
class E(enum.Enum): A=1; B=2
def f(x): n=NT(x,x*2); m=n._replace(b=x); return n, m.b*(1 if E(2) is E.B else 2)
S=lambda: 0
""",
    "metac": r"""
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
S=lambda: 0
""",
    "inspect": r"""
import inspect, functools
def g(a,b=2,*c,d=3,**e): return a*b
@functools.wraps(g)
def w(*a,**k): s=inspect.signature(g); b=s.bind(*a,**k); return g(*b.args,**b.kwargs)*len(s.parameters)
def f(x): return w(x,b=4)
S=lambda: 0
""",
    "gradmode": r"""
@torch.no_grad()
def g(x): return x*2
def f(x):
    torch.set_grad_enabled(False); y=g(x); e=torch.is_grad_enabled(); torch.set_grad_enabled(True)
    with torch.enable_grad(): z=y+1
    return z,e,torch.is_grad_enabled()
S=lambda: torch.is_grad_enabled()
""",
    "ctxvar": r"""
import contextvars
V=contextvars.ContextVar('V',default=1)
def f(x): t=V.set(V.get()+1); y=x*V.get(); V.reset(t); V.set(V.get()+10); return y
S=lambda: V.get()
""",
    "weakd": r"""
import weakref
class K: pass
k=K(); W=weakref.WeakKeyDictionary()
def f(x): W[k]=W.get(k,0)+1; return x*W[k]
S=lambda: list(W.values())
""",
    "npy": r"""
import numpy as np
A=np.arange(3.)
def f(x): y=x+torch.from_numpy(A); A[0]+=1; return y*float(np.sqrt(4))
S=lambda: A.tolist()
""",
    "strcache": r"""
import re
R=re.compile('a(.)')
def f(x): return x*len(R.sub('b','abacad'))*int(re.match('([0-9]+)x','12x').group(1))
S=lambda: 0
""",
    "kwbind": r"""
def g(a,/,b,*c,d=4,**e): return a*b+sum(c)+d+sum(e.values())
def f(x):
    try: g(x)
    except TypeError as e: m=str(e)
    return g(x,2,3,d=5,q=6),g(*[x,1],**{'d':2}),m
S=lambda: 0
""",
    "dyn_code": r"""
def f(x): 
    ns={}; y=eval('2+3'); exec('z=4',ns); return x*y*ns['z']
S=lambda: 0
""",
    "classdef": r"""
def f(x):
    class L:
        k=3
        def m(s,y): return y*s.k
    return L().m(x)
S=lambda: 0
""",
}
