"""Which check of the oneDNN self-test fails on this machine?  python diag_onednn.py [path of libdnnl.so.3]"""
import ctypes as C, glob, os, sys
import torch
print("torch", torch.__version__, "threads", torch.get_num_threads(), torch.backends.cpu.get_cpu_capability())
print([l.split(":")[1].strip() for l in open("/proc/cpuinfo") if "model name" in l][:1])
cand = sys.argv[1:] or glob.glob(sys.prefix + "/lib/libdnnl.so.3*") + glob.glob("/tmp/site/**/libdnnl.so.3*", recursive=True)
cand += glob.glob(os.path.dirname(torch.__file__) + "/../../../libdnnl.so.3*")
print("candidates", cand)
os.environ["ONEDNN_VERBOSE"] = "2"
L = C.CDLL(cand[0] if cand else "libdnnl.so.3")
P = C.c_void_p
I64 = C.c_int64 * 12
class V(C.Structure):
    _fields_ = [("a", C.c_int), ("b", C.c_int), ("c", C.c_int), ("hash", C.c_char_p)]
class Arg(C.Structure):
    _fields_ = [("arg", C.c_int), ("mem", P)]
L.dnnl_version.restype = C.POINTER(V)
v = L.dnnl_version().contents
print("version", v.a, v.b, v.c, v.hash)
L.dnnl_primitive_desc_query_md.restype = P
L.dnnl_memory_desc_get_size.restype = C.c_size_t
L.dnnl_get_effective_cpu_isa.restype = C.c_int
print("effective isa 0x%x" % L.dnnl_get_effective_cpu_isa())
def mk(f, *a):
    p = P()
    rc = getattr(L, f)(C.byref(p), *a)
    print("  %-50s rc %d" % (f, rc))
    return p
eng = mk("dnnl_engine_create", 1, C.c_size_t(0))
st = mk("dnnl_stream_create", eng, 1)
for n in (1, 16, 64):
    for strides in ("row", "ones"):
        print("== %dx%d %s strides" % (n, n, strides))
        dims = I64(n, n)
        s = I64(n, 1) if strides == "row" else I64(1, 1)
        if strides == "ones" and n > 1:
            continue
        md = P(); print("  md rc", L.dnnl_memory_desc_create_with_strides(C.byref(md), 2, dims, 3, s))
        attr = mk("dnnl_primitive_attr_create"); po = mk("dnnl_post_ops_create")
        print("  scratchpad mode rc", L.dnnl_primitive_attr_set_scratchpad_mode(attr, 1))
        print("  binary rc", L.dnnl_post_ops_append_binary(po, 0x1fff0, md))
        print("  set post ops rc", L.dnnl_primitive_attr_set_post_ops(attr, po))
        pd = P(); rc = L.dnnl_matmul_primitive_desc_create(C.byref(pd), eng, md, md, None, md, attr)
        print("  matmul pd rc", rc)
        if rc: continue
        name = C.c_char_p(); L.dnnl_primitive_desc_query(pd, 8, 0, C.byref(name)); print("  implementation", name.value)
        prim = P(); print("  primitive rc", L.dnnl_primitive_create(C.byref(prim), pd))
        smd = P(L.dnnl_primitive_desc_query_md(pd, 136, 0))
        size = L.dnnl_memory_desc_get_size(smd) if smd else None
        print("  scratchpad md", smd.value and hex(smd.value), "size", size, "(the self-test of the first version takes at most 4096)")
        bufs = [(C.c_float * (n * n))(*([x] * (n * n))) for x in (2, 3, 4, 0)]
        mem = []
        for b in bufs:
            m = P(); rc = L.dnnl_memory_create(C.byref(m), md, eng, b); mem.append(m)
            if rc: print("  memory rc", rc)
        raw = C.create_string_buffer((size or 0) + 128)
        pad = P((C.addressof(raw) + 63) & ~63)
        sm = P(); print("  scratch memory rc", L.dnnl_memory_create(C.byref(sm), smd, eng, pad) if smd else None)
        for base in (16384, 32768, 65536):
            for scr in (True, False):
                if not scr and size: continue
                a = [(1, mem[0]), (33, mem[1]), (base | 2, mem[2]), (17, mem[3])] + ([(80, sm)] if scr else [])
                arr = (Arg * len(a))(*[Arg(i, m) for i, m in a])
                bufs[3][0] = -1
                rc = L.dnnl_primitive_execute(prim, st, len(a), arr); L.dnnl_stream_wait(st)
                print("  base %d scratch %s: rc %d, result %g, want %g" % (base, scr, rc, bufs[3][0], 6 * n + 4))
