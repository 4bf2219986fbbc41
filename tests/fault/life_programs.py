"""Small programs about the life of a process: exit, threads, signals, tracers, fork, copies, garbage collection.

Each raises when something is wrong; sys, os, torch and magneto are there already.
"""

CASES = {
    "exit_live": """
f=magneto.compile(lambda x: (x*2).sin()); f(torch.ones(3))
m=magneto.compile(torch.nn.Linear(3,3)); m(torch.ones(3))
""",
    "atexit_call": """
import atexit
f=magneto.compile(lambda x: (x*2).sin()); f(torch.ones(3))
atexit.register(lambda: print(f(torch.ones(3)).shape, magneto.compile(lambda x: x+1)(torch.ones(2)).sum()))
""",
    "del_at_exit": """
class D:
    def __del__(self):
        try: f(torch.ones(3));
        except Exception as e: pass
f=magneto.compile(lambda x: (x*2).sin()); f(torch.ones(3))
d=D(); d.self=d
""",
    "threads_same": """
import threading
def f(x,n):
    y=x*2
    for i in range(n): y=y.sin()+i
    if n%2: print(end='')
    return y
c=magneto.compile(f); err=[]
def w(k):
    try:
        for i in range(15):
            n=(i+k)%5
            x=torch.full((4,),float(k))
            assert torch.allclose(c(x,n), f(x,n)), (k,n)
            if i%5==0: magneto.reset()
    except BaseException as e:
        import traceback; traceback.print_exc(); err.append(e)
ts=[threading.Thread(target=w,args=(k,)) for k in range(32)]
[t.start() for t in ts]; [t.join() for t in ts]
assert not err, err[:2]
""",
    "threads_modules": """
import threading
ms=[torch.nn.Sequential(torch.nn.Linear(4,4),torch.nn.ReLU(),torch.nn.Linear(4,4)) for _ in range(16)]
err=[]
def w(k):
    try:
        with torch.no_grad():
            m=ms[k%16]; c=magneto.compile(m)
            for i in range(6):
                x=torch.randn(2+i%3,4)
                assert torch.allclose(c(x), m(x), atol=1e-5)
    except BaseException as e:
        import traceback; traceback.print_exc(); err.append(e)
ts=[threading.Thread(target=w,args=(k,)) for k in range(32)]
[t.start() for t in ts]; [t.join() for t in ts]
assert not err, err[:2]
""",
    "configs": """
def f(x):
    y=x*2; print(end=''); return y+1
a=magneto.compile(f); b=magneto.compile(f,backend='aten'); c=magneto.compile(f,mode='max-autotune'); d=magneto.compile(f,fullgraph=True)
x=torch.ones(3)
for k in (a,b,c): assert torch.equal(k(x), f(x))
try: d(x); assert 0
except RuntimeError: pass
for k in (a,b,c): assert torch.equal(k(x), f(x))
""",
    "sigint_everywhere": """
import signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
def f(x):
    for i in range(30): x=torch.sin(x)*1.01+i
    return x
import _thread
n=0
for k in range(25):
    magneto.reset()
    c=magneto.compile(f)
    ev=threading.Event(); go=False
    def bg():
        while not go: pass
        time.sleep(0.0005*k); _thread.interrupt_main(); ev.set()
    t=threading.Thread(target=bg); t.start()
    try:
        go=True
        c(torch.ones(3))
        while not ev.is_set(): time.sleep(0.001)
        time.sleep(0.01)
    except KeyboardInterrupt: n+=1
    t.join()
    assert torch.is_grad_enabled() and not torch.compiler.is_compiling()
    assert torch.allclose(magneto.compile(f)(torch.ones(3)), f(torch.ones(3)), rtol=1e-4)
print('interrupts', n)
""",
    "settrace": """
def f(x):
    y=x*2
    y=y+1
    return y
c=magneto.compile(f); c(torch.ones(3))
lines=[]
def tr(fr,ev,a):
    if fr.f_code is f.__code__: lines.append((ev,fr.f_lineno-f.__code__.co_firstlineno))
    return tr
sys.settrace(tr); c(torch.ones(3)); sys.settrace(None)
assert [l for e,l in lines if e=='line']==[1,2,3], lines
ev=[]
sys.setprofile(lambda fr,e,a: ev.append((e,fr.f_code.co_name))); c(torch.ones(3)); sys.setprofile(None)
assert ('call','f') in ev and ('return','f') in ev, ev[:5]
# tracer that starts in the middle
def g(x):
    y=x*2
    sys.settrace(tr2)
    sys._getframe().f_trace=tr2
    y=y+1
    y=y+3
    sys.settrace(None)
    return y
seen=[]
def tr2(fr,ev,a):
    if fr.f_code is g.__code__: seen.append(fr.f_lineno-g.__code__.co_firstlineno)
    return tr2
d=magneto.compile(g)
for _ in range(3):
    seen.clear(); r=d(torch.ones(3)); assert torch.equal(r, g(torch.ones(3))); print(seen)
""",
    "cprofile": """
import cProfile, pstats, io
def h(x): return x*2
def f(x): return h(x)+1
c=magneto.compile(f); c(torch.ones(3))
p=cProfile.Profile(); p.enable(); c(torch.ones(3)); p.disable()
s=io.StringIO(); pstats.Stats(p,stream=s).print_stats(); assert '(h)' in s.getvalue(), s.getvalue()
p=cProfile.Profile(); p.enable(); magneto.compile(lambda x: h(x)*3)(torch.ones(3)); p.disable()
""",
    "pdb": """
import pdb, io
def f(x):
    y=x*2
    pdb.Pdb(stdin=io.StringIO('n\\nn\\nc\\n'),stdout=out,nosigint=True).set_trace()
    y=y+1
    return y
c=magneto.compile(f)
for _ in range(2):
    out=io.StringIO(); r=c(torch.ones(3)); assert torch.equal(r, torch.ones(3)*3); assert 'y=y+1' in out.getvalue() or '->' in out.getvalue(), out.getvalue()
    assert sys.gettrace() is not None or True
    sys.settrace(None)
""",
    "fork": """
f=magneto.compile(lambda x: (x@x).sin()); x=torch.randn(64,64); f(x)
for _ in range(3):
    pid=os.fork()
    if not pid:
        import signal; signal.alarm(60)
        ok=torch.allclose(f(x),(x@x).sin(),atol=1e-5) and torch.allclose(magneto.compile(lambda x: (x*3).cos())(x),(x*3).cos(),atol=1e-5)
        os._exit(0 if ok else 1)
    assert os.waitpid(pid,0)[1]==0
""",
    "fork_threads": """
import threading,time
stop=False
f=magneto.compile(lambda x: (x*2).sin()+x)
def w():
    i=0
    while not stop:
        i+=1; ns={}; exec(f"def f(x): return (x*{i}).sin()+x", ns); magneto.compile(ns['f'])(torch.ones(3))
ts=[threading.Thread(target=w) for _ in range(3)]; [t.start() for t in ts]
for _ in range(4):
    pid=os.fork()
    if not pid:
        import signal; signal.alarm(60)
        ok=torch.allclose(magneto.compile(lambda x: (x*3).cos())(torch.ones(3)),(torch.ones(3)*3).cos(),atol=1e-5)
        os._exit(0 if ok else 1)
    r=os.waitpid(pid,0)[1];
    if r: print('child', r); stop=True; break
stop=True; [t.join() for t in ts]
assert r==0
""",
    "fork_teams": """
import threading, signal, gc
torch.set_num_threads(2)
conv=torch.nn.Conv2d(8,16,3)
def fn(x,c): return (x@x).sin()+x.sum(), conv(c).relu()
f=magneto.compile(fn); x=torch.randn(192,192); c=torch.randn(2,8,24,24); stop=False
def w():
    while not stop:
        with torch.no_grad(): f(x,c); magneto.compile(lambda x: (x@x).cos())(x)
with torch.no_grad(): want=fn(x,c); f(x,c); f(x,c)
ts=[threading.Thread(target=w) for _ in range(2)]; [t.start() for t in ts]
r=0
for _ in range(3):
    pid=os.fork()
    if not pid:
        signal.alarm(60)
        with torch.no_grad(): got=f(x,c)
        torch.set_num_threads(1)
        os._exit(0 if all(torch.allclose(a,b,atol=1e-3) for a,b in zip(got,want)) else 1)
    r=r or os.waitpid(pid,0)[1]
stop=True; [t.join() for t in ts]
assert r==0, r
""",
    "deepcopy_pickle": """
import copy, pickle
class M(torch.nn.Module):
    def __init__(s): super().__init__(); s.l=torch.nn.Linear(3,3)
    def forward(s,x): return s.l(x).relu()
import types
space=types.ModuleType('mg_space'); sys.modules['mg_space']=space; M.__module__='mg_space'; M.__qualname__='M'; space.M=M
m=M(); c=magneto.compile(m); x=torch.randn(2,3); c(x)
d=copy.deepcopy(c); d.l.weight.data.zero_(); assert not torch.equal(d(x), c(x)); assert torch.allclose(d(x), d.l.bias.relu().expand(2,3))
e=pickle.loads(pickle.dumps(c)); assert torch.allclose(e(x), m(x))
import io
b=io.BytesIO(); torch.save(c, b); b.seek(0); assert torch.allclose(torch.load(b,weights_only=False)(x), m(x))
def fn(x): return x+1
fn.__module__='mg_space'; fn.__qualname__='fn'
space.fn=cf=magneto.compile(fn); cf(x)
assert pickle.loads(pickle.dumps(cf)) is cf and copy.deepcopy(cf) is cf and copy.copy(cf) is cf
""",
    "dataloader": """
from torch.utils.data import DataLoader, Dataset
f=magneto.compile(lambda x: (x*2).sin())
class D(Dataset):
    def __len__(s): return 16
    def __getitem__(s,i): return f(torch.full((3,),float(i)))
f(torch.ones(3))
for ctx in ('fork',):
    out=torch.cat(list(DataLoader(D(),batch_size=4,num_workers=2,multiprocessing_context=ctx)))
    assert torch.allclose(out, (torch.arange(16.)[:,None].expand(16,3)*2).sin(), atol=1e-5)
""",
    "gc_during": """
import gc
class C: pass
def f(x):
    l=[]
    for i in range(5):
        c=C(); c.c=c; l.append(c)
    del l, c
    gc.collect()
    return x*2
c=magneto.compile(f)
gc.set_threshold(1)
for _ in range(3): assert torch.equal(c(torch.ones(3)), torch.ones(3)*2)
gc.set_threshold(1,1,1)
def g(x):
    d=[{'a':x*i} for i in range(10)]
    return sum(e['a'] for e in d)
for _ in range(3): assert torch.equal(magneto.compile(g)(torch.ones(3)), g(torch.ones(3)))
""",
    "del_raises": """
class D:
    def __del__(self): raise ValueError('del')
def f(x):
    d=D()
    del d
    return x*2
sys.unraisablehook=lambda u: seen.append(u.exc_value)
for _ in range(3):
    seen=[]
    c=magneto.compile(f); assert torch.equal(c(torch.ones(3)), torch.ones(3)*2); print(len(seen))
class E:
    def __del__(self): log.append(torch.ones(2)*2)
def g(x):
    e=E(); y=x*2
    del e
    return y
log=[]
c=magneto.compile(g)
for _ in range(3): c(torch.ones(3))
print(len(log)); assert len(log)==3, len(log)
""",
    "recursion": """
def f(x,n): return x if n==0 else f(x+1,n-1)
c=magneto.compile(f)
for n in (5,100,300): assert c(torch.zeros(1),n).item()==n
def g(x): return g(x)
for _ in range(3):
    try: magneto.compile(g)(torch.ones(2)); assert 0
    except RecursionError: pass
sys.setrecursionlimit(100000)
def h(x,n): return x if n==0 else h(x,n-1)
try: print(magneto.compile(h)(torch.zeros(1),3000).item())
except RecursionError as e: print('rec')
""",
    "deep_recursion": """
import threading
sys.setrecursionlimit(1000000)
def down(x,n): return x if n==0 else down(x,n-1)
def breaks(x,n):
    if n==0: print('bottom'); return x+1
    return breaks(x,n-1)
def run(n):
    for f in (down, breaks):
        c=magneto.compile(f)
        for _ in range(2): assert torch.equal(c(torch.ones(2),n), f(torch.ones(2),n))
    magneto.reset()
run(30000)
threading.stack_size(1<<18)
t=threading.Thread(target=run, args=(600,)); t.start(); t.join()
assert not t.is_alive() and torch.equal(magneto.compile(down)(torch.ones(2),2), torch.ones(2))
""",
    "setattr_del_in_del": """
import gc
class M(torch.nn.Module):
    def __init__(s): super().__init__(); s.l=torch.nn.Linear(3,3)
    def forward(s,x): return s.l(x)
    def __del__(s): magneto.reset()
for _ in range(10):
    m=M(); c=magneto.compile(m); c(torch.ones(3)); del m,c; gc.collect()
""",
    "reset_in_guard": """
class K:
    def __init__(s,k): s.k=k
    def __hash__(s): return hash(s.k)
    def __eq__(s,o):
        magneto.reset(); return s.k==o.k
d={K(1):2,K(2):3}
def f(x,d): return x*d[K(1)]
def g(x): return x*len(d)*sum(d.values())
c=magneto.compile(f); e=magneto.compile(g)
for i in range(5): assert torch.equal(c(torch.ones(2),d), torch.ones(2)*2); e(torch.ones(2)); d[K(3)]=i
""",
    "generator_life": """
def gen(x):
    y=x*2
    yield y
    print(end='')
    yield y+1
def f(x):
    g=gen(x); a=next(g); b=next(g)
    return a+b
c=magneto.compile(f)
for _ in range(3): assert torch.equal(c(torch.ones(3)), f(torch.ones(3)))
cg=magneto.compile(gen)
for _ in range(3): assert [t.sum().item() for t in cg(torch.ones(3))]==[6.0,9.0]
import asyncio
async def co(x): return x*2
assert asyncio.run(magneto.compile(co)(torch.ones(2))).sum()==4
""",
    "sys_exit": """
def f(x):
    y=x*2
    if y.sum()>0: sys.exit(0)
    return y
magneto.compile(f)(torch.ones(3))
""",
    "frames_introspection": """
import inspect, traceback
def g(): return sys._getframe(1).f_locals
def f(x):
    y=x*2
    d=g()
    return y, sorted(d)
c=magneto.compile(f)
eager=f(torch.ones(3))[1] # since 3.13 f_locals is live, and has d
for _ in range(3): r=c(torch.ones(3)); assert r[1]==eager, r[1]
def h(x):
    z=x*3
    return sorted(locals()), z
c=magneto.compile(h)
for _ in range(3): assert c(torch.ones(2))[0]==['x','z']
def k(x):
    try:
        y=x*2
        raise ValueError('a')
    except ValueError as e:
        tb=e.__traceback__
        return y, tb.tb_frame.f_code.co_name, tb.tb_lineno-k.__code__.co_firstlineno
c=magneto.compile(k)
for _ in range(3): assert c(torch.ones(2))[1:]==('k',3), c(torch.ones(2))
""",
}
