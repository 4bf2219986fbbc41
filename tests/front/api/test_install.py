"""magneto.install(): torch.compile's calls for the back end "magneto" go to magneto's own front end."""

import copy
import functools
import inspect
import pickle
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from torch._dynamo import OptimizedModule
from torch._dynamo.testing import CompileCounter

import magneto
from magneto import _magneto
from support import assert_same, counts

X = torch.linspace(-1, 1, 12).reshape(3, 4)
PLAIN = torch.compile.__code__
compile_by_name = torch.compile  # as `from torch import compile` has it


def f(x, scale=2.0):
    return x.sin() * scale


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def ours(compiled):
    """Is this compiled by magneto's own front end?"""
    return (
        isinstance(compiled, _magneto.Callable)
        or type(compiled).__module__ == "magneto._install.optimized_module"
    )


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    magneto.uninstall()
    assert torch.compile.__code__ is PLAIN, "the code of torch.compile was not put back"
    torch._dynamo.reset()


def test_importing_magneto_changes_nothing():
    program = """
import sys, torch
code, signature, path, compiles = torch.compile.__code__, vars(torch.compile).copy(), list(sys.meta_path), torch.nn.Module.compile
before = set(vars(torch)), set(vars(torch.nn.Module))
import magneto
assert torch.compile.__code__ is code and vars(torch.compile) == signature
assert sys.meta_path == path and torch.nn.Module.compile is compiles
assert before == (set(vars(torch)), set(vars(torch.nn.Module)))
assert "torch._dynamo.eval_frame" not in sys.modules and "accelerate" not in sys.modules
magneto.install()
compiled = torch.compile(torch.nn.Linear(2, 2), backend="magneto")
compiled(torch.ones(1, 2))
assert "torch._dynamo.eval_frame" not in sys.modules, "compiling a module loads Dynamo"
assert type(compiled).__name__ == "OptimizedModule"
import torch._dynamo
assert isinstance(compiled, torch._dynamo.OptimizedModule)
magneto.uninstall()
assert torch.compile.__code__ is code and vars(torch.compile) == signature and sys.meta_path == path
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    "compiles", [torch.compile, compile_by_name, torch.compiler.compile], ids=["torch", "by name", "compiler"]
)
def test_functions(compiles):
    with magneto.install():
        compiled = compiles(f, backend="magneto", fullgraph=True)
        decorated = compiles(backend="magneto")(f)
    assert ours(compiled) and ours(decorated)
    assert_same(compiled(X, scale=3.0), f(X, scale=3.0))
    assert_same(decorated(X), f(X))
    assert compiled._torchdynamo_orig_callable is f and compiled.__name__ == "f"
    assert counts().graphs == 2


def test_other_back_ends_are_dynamos():
    counter = CompileCounter()
    with magneto.install(default=True):
        compiled = torch.compile(f, backend=counter)
        assert_same(compiled(X), f(X))
    assert counter.frame_count == 1 and counts().graphs == 0


def test_without_a_back_end():
    with magneto.install():
        assert not ours(torch.compile(f))
        torch.compiler.set_default_backend("magneto")
        try:
            assert ours(torch.compile(f))
        finally:
            torch.compiler.set_default_backend(None)
    with magneto.install(default=True):
        assert ours(torch.compile(f)) and ours(torch.compile(net())) and ours(torch.compile()(f))
        assert not ours(torch.compile(f, backend="inductor"))
        torch.compiler.set_default_backend("eager")
        try:
            assert not ours(torch.compile(f))
        finally:
            torch.compiler.set_default_backend(None)
    assert not ours(torch.compile(f, backend="magneto"))


def test_a_module_is_what_frameworks_know():
    model = net()
    with magneto.install():
        compiled = torch.compile(model, backend="magneto")
    assert isinstance(compiled, OptimizedModule) and isinstance(compiled, torch.nn.Module)
    assert compiled._orig_mod is model
    want = torch.compile(net(), backend="eager")
    assert list(compiled.state_dict()) == list(want.state_dict())
    assert [name for name, _ in compiled.named_modules()] == [name for name, _ in want.named_modules()]
    assert repr(compiled) == repr(want) and len(compiled) == 3 and set(dir(model)) <= set(dir(compiled))
    assert_same(compiled(X), model(X))
    compiled.eval()
    assert not model.training and not compiled.training
    compiled.tag = 3
    assert model.tag == 3 and compiled.tag == 3
    del compiled.tag
    assert not hasattr(model, "tag") and not hasattr(compiled, "tag")
    for copied in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert ours(copied) and copied._orig_mod is not model
        assert_same(copied(X), model(X))


def test_dynamo_ctx_compiles_other_functions_likewise():
    model = net()
    with magneto.install():
        compiled = torch.compile(model, backend="magneto", fullgraph=True)
    again = compiled.dynamo_ctx(model.forward)
    assert ours(again) and again.options()["fullgraph"]
    assert_same(again(X), model(X))
    assert ours(compiled.dynamo_ctx(net()))
    assert compiled.get_compiler_config()["fullgraph"]


def test_a_compiled_module_is_compiled_again_not_twice():
    model = net()
    with magneto.install():
        compiled = torch.compile(torch.compile(model, backend="magneto"), backend="magneto", fullgraph=True)
    assert compiled._orig_mod is model and magneto.compile(compiled)(X).shape == (3, 2)
    twin = magneto.compile(model)
    with magneto.install():
        assert torch.compile(twin, backend="magneto")._orig_mod is model


def test_the_class_of_a_compiled_module_can_be_changed():
    with magneto.install():
        compiled = torch.compile(net(), backend="magneto")
    named = type("Sharded", (compiled.__class__,), {})  # as fully_shard() does it
    compiled.__class__ = named
    assert type(compiled) is named
    assert_same(compiled(X), compiled._orig_mod(X))


def test_hooks_of_a_compiled_module():
    model, seen = net(), []
    model.register_forward_hook(lambda *_: seen.append("inner"))
    with magneto.install():
        compiled = torch.compile(model, backend="magneto")
    compiled.register_forward_hook(lambda *_: seen.append("outer"))
    for _ in range(2):
        compiled(X)
    assert seen == ["inner", "outer"] * 2


def test_lazy_modules():
    torch.manual_seed(0)
    lazy = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.ReLU())
    with magneto.install():
        compiled = torch.compile(lazy, backend="magneto")
    assert_same(compiled(X), lazy(X))


def test_module_compile():
    model = net()
    want = model(X)
    with magneto.install():
        model.compile(backend="magneto", fullgraph=True)
    assert ours(model._compiled_call_impl)
    assert_same(model(X), want)
    assert counts().graphs == 1


def test_a_compiled_module_inside_of_a_compiled_function():
    model = net()
    with magneto.install():
        inner = torch.compile(model, backend="magneto")
        outer = torch.compile(lambda x: inner(x).relu() + 1, backend="magneto", fullgraph=True)
    assert_same(outer(X), model(X).relu() + 1)
    assert counts().graphs == 1


def test_torch_compile_inside_of_a_compiled_function():
    def program(x):
        return torch.compile(f, backend="magneto")(x) + 1

    with magneto.install():
        compiled = torch.compile(program, backend="magneto")
        for _ in range(2):
            assert_same(compiled(X), f(X) + 1)


def test_a_wrapper_around_a_compiled_function_is_not_skipped():
    """functools.wraps copies the marks of torch.compile with the __dict__."""
    for compiles in (torch.compile, torch.compiler.disable):
        inner = compiles(f, backend="eager") if compiles is torch.compile else compiles(f, recursive=False)

        @functools.wraps(inner)
        def wrapper(x, inner=inner):
            return inner(x) + 1

        assert_same(magneto.compile(lambda x, w=wrapper: w(x) * 2)(X), (f(X) + 1) * 2)


def test_keywords_are_passed_on():
    with magneto.install():
        got = torch.compile(f, backend="magneto", fullgraph=True, dynamic=False, recompile_limit=3).options()
        assert got["fullgraph"] and got["dynamic"] == 0 and got["recompile_limit"] == 3
        assert torch.compile(f, backend="magneto", dynamic=True).options()["dynamic"] == 1
        assert torch.compile(f, backend="magneto", isolate_recompiles=True).options()["isolated"]
        assert torch.compile(f, backend="magneto", disable=True) is f
        for mode in torch._inductor.list_mode_options():
            assert_same(torch.compile(f, backend="magneto", mode=mode)(X), f(X))
        got = torch.compile(f, backend="magneto", options={"freeze": True, "threads": 1}).options()
        assert got["freeze"] and got["threads"] == 1


def test_disabled_in_the_environment(monkeypatch):
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    with magneto.install():
        assert torch.compile(f, backend="magneto") is f


def test_inductors_options():
    take = {
        "freezing": True,
        "layout_optimization": False,
        "cpp.threads": -1,
        "max_autotune": True,
        "emulate_precision_casts": True,
        "epilogue_fusion": False,
        "triton.cudagraphs": True,
    }
    got = magneto.compile(f, options=take)
    assert got.options()["freeze"] and got.options()["keep_layout"] and got.options()["threads"] == 0
    assert_same(got(X), f(X))
    assert magneto.compile(f, options={"cpp.threads": 1}).options()["threads"] == 1
    with pytest.raises(
        ValueError, match=r"unknown option 'max_autotun'; valid options: 'freeze'.*list_options"
    ):
        magneto.compile(f, options={"max_autotun": True})
    with pytest.raises(TypeError, match="option 'freezing' must be of type bool, got int"):
        magneto.compile(f, options={"freezing": 1})
    with pytest.raises(TypeError, match="option 'cpp.threads' must be of type int, got str"):
        magneto.compile(f, options={"cpp.threads": "2"})
    with pytest.raises(ValueError, match="unknown option 3"):
        magneto.compile(f, options={3: True})


def test_options_that_cannot_be_honoured_are_told_once(monkeypatch):
    from magneto._backends import inductor_options

    monkeypatch.setattr(inductor_options, "_told", set())
    given = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
    with magneto.install():
        with pytest.warns(
            RuntimeWarning, match="'guard_filter_fn' has no effect: every guard is kept"
        ) as told:
            compiled = torch.compile(f, backend="magneto", options=given)
        assert told[0].filename == __file__
        assert_same(compiled(X), f(X))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.compile(f, backend="magneto", options=given)
    assert list(given) == ["guard_filter_fn"]


def test_errors():
    with pytest.raises(TypeError, match="magneto.install: default must be a bool, got int"):
        magneto.install(default=1)
    with magneto.install():
        with pytest.raises(RuntimeError, match="Either mode or options can be specified"):
            torch.compile(f, backend="magneto", mode="default", options={"freeze": True})
        with pytest.raises(TypeError, match="unexpected keyword argument 'fulgraph'"):
            torch.compile(f, backend="magneto", fulgraph=True)
        with pytest.raises(ValueError, match="unknown mode 'fast'"):
            torch.compile(f, backend="magneto", mode="fast")
        with pytest.raises(TypeError, match="model must be callable, got int"):
            torch.compile(3, backend="magneto")


def test_the_signature_stays():
    before = inspect.signature(torch.compile)
    with magneto.install():
        assert inspect.signature(torch.compile) == before
        assert torch.compile is compile_by_name
    assert inspect.signature(torch.compile) == before


def installed():
    return ours(torch.compile(f, backend="magneto"))


def test_repeated_and_nested():
    magneto.uninstall()
    magneto.install()
    magneto.install()
    assert installed()
    with magneto.install(default=True):
        assert ours(torch.compile(f))
        with magneto.install():
            assert ours(torch.compile(f)), "an inner block takes away what an outer one asked for"
            magneto.uninstall()
            assert installed(), "uninstall() ends blocks of others"
        magneto.install(default=False)
    assert installed() and not ours(torch.compile(f))
    magneto.install(default=True)
    assert ours(torch.compile(f))
    magneto.install()
    assert not ours(torch.compile(f)), "the last install() decides"
    magneto.uninstall()
    assert not installed()


def test_a_block_leaves_the_programs_own_installation():
    magneto.install(default=True)
    with magneto.install():
        pass
    assert ours(torch.compile(f))


def test_blocks_end_in_any_order_and_by_exceptions():
    a, b = magneto.install(), magneto.install()
    a.__enter__()
    b.__enter__()
    a.__exit__(None, None, None)
    assert installed()
    b.__exit__(None, None, None)
    assert not installed()
    with pytest.raises(ZeroDivisionError), magneto.install():
        raise ZeroDivisionError
    assert not installed()
    with b, b:  # one object may be used again
        assert installed()
    assert not installed()


def test_wrappers_of_torch_compile_by_others(monkeypatch):
    """Lightning wraps torch.compile when it is imported: before install(), or between it and uninstall()."""
    seen = []

    def wrap(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            seen.append(kwargs)
            return fn(*args, **kwargs)

        return wrapper

    plain = torch.compile
    monkeypatch.setattr(torch, "compile", wrap(plain))
    with magneto.install():
        assert installed()
        monkeypatch.setattr(torch, "compile", wrap(torch.compile))
        assert installed()
    assert not installed() and len(seen) == 5
    assert plain.__code__ is PLAIN
    monkeypatch.setattr(torch, "compile", lambda *args: None)
    with pytest.raises(RuntimeError, match="torch.compile has been replaced by .* __wrapped__"):
        magneto.install()
    monkeypatch.setattr(torch, "compile", plain)
    assert not installed(), "a failed install() left something"


def test_threads():
    errors = []

    def work():
        try:
            for _ in range(30):
                with magneto.install():
                    compiled = torch.compile(f, backend="magneto")
                    assert ours(compiled)
                    assert_same(compiled(X), f(X))
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and not installed()


def test_a_training_step():
    torch.manual_seed(0)
    model, want = net(), net()
    with magneto.install():
        compiled = torch.compile(model, backend="magneto")
    for m, parameters in ((compiled, compiled.parameters()), (want, want.parameters())):
        optimizer = torch.optim.AdamW(parameters, lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            m(X).square().mean().backward()
            optimizer.step()
    for a, b in zip(model.parameters(), want.parameters(), strict=True):
        assert_same(a, b)
