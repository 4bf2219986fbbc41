"""Wrong arguments name themselves; kinds of tensors that are not compiled run eagerly with the right result."""
import warnings

import pytest
import torch

import magneto


def f(x):
    return x + 1


@pytest.mark.parametrize(
    "kwargs, error, words",
    [
        ({"fullgraph": 1}, TypeError, ["fullgraph", "bool", "int"]),
        ({"dynamic": "yes"}, TypeError, ["dynamic", "str"]),
        ({"disable": 0}, TypeError, ["disable"]),
        ({"mode": 3}, TypeError, ["mode", "int"]),
        ({"mode": "fastest"}, ValueError, ["fastest", "reduce-overhead", "max-autotune", "default"]),
        ({"options": [1]}, TypeError, ["options", "list"]),
        ({"options": {"freez": True}}, ValueError, ["freez", "freeze", "threads"]),
        ({"options": {"threads": "4"}}, TypeError, ["threads", "int", "str"]),
        ({"options": {"threads": True}}, TypeError, ["threads"]),
        ({"options": {"threads": -1}}, ValueError, ["threads"]),
        ({"options": {"freeze": 1}}, TypeError, ["freeze", "bool"]),
        ({"backend": "magnet"}, ValueError, ["magnet", "'magneto'", "'inductor'"]),
        ({"backend": 7}, TypeError, ["backend", "int"]),
        ({"backend": None}, TypeError, ["backend"]),
    ],
)
def test_arguments(kwargs, error, words):
    for make in (lambda: magneto.compile(f, **kwargs), lambda: magneto.compile(**kwargs)):
        with pytest.raises(error) as info:
            make()
        for word in words:
            assert word in str(info.value)


def test_not_callable():
    for bad in (3, "f", [f]):
        with pytest.raises(TypeError, match="callable"):
            magneto.compile(bad)
        with pytest.raises(TypeError, match="callable"):
            magneto.explain(bad)
        with pytest.raises(TypeError, match="callable"):
            magneto.disable(bad)


def test_unknown_keyword():
    with pytest.raises(TypeError, match="fullgraf"):
        magneto.compile(f, fullgraf=True)


def test_wrong_call():
    c = magneto.compile(f)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"f\(\) missing 1 required positional argument: 'x'"):
            c()
        with pytest.raises(TypeError, match=r"f\(\) takes 1 positional argument but 2 were given"):
            c(1, 2)
        torch.testing.assert_close(c(torch.ones(2)), torch.full((2,), 2.0))


class Sub(torch.Tensor):
    """A user's tensor subclass."""


def quantized():
    return torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)


KINDS = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse_csr": lambda: torch.eye(3).to_sparse_csr(),
    "meta": lambda: torch.ones(3, device="meta"),
    "complex": lambda: torch.ones(3, dtype=torch.complex64),
    "conj": lambda: torch.full((3,), 1j).conj(),
    "neg": lambda: torch.full((3,), 1j).conj().imag,
    "subclass": lambda: torch.ones(3).as_subclass(Sub),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_tensor_kinds(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = KINDS[kind]()
        fn = lambda t: (t * 2, torch.ones(2) * 3)
        want = fn(x)
        c = magneto.compile(fn)
        for _ in range(2):
            got = c(x)
            assert type(got[0]) is type(want[0]) and got[0].layout == want[0].layout
            assert got[0].device == want[0].device and got[0].dtype == want[0].dtype
            if kind == "nested":
                assert all(torch.equal(a, b) for a, b in zip(got[0].unbind(), want[0].unbind()))
            elif kind != "meta":
                torch.testing.assert_close(got[0].to_dense() if got[0].layout != torch.strided else got[0],
                                           want[0].to_dense() if want[0].layout != torch.strided else want[0])
            torch.testing.assert_close(got[1], want[1])


def test_quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        q = quantized()
        c = magneto.compile(lambda t: t.dequantize() + 1)
        torch.testing.assert_close(c(q), q.dequantize() + 1)


def test_function_that_raises():
    def g(x, n):
        y = x * 2
        if n > 1:
            raise KeyError(f"n is {n}")
        return y

    c = magneto.compile(g)
    for _ in range(2):
        with pytest.raises(KeyError, match="n is 3"):
            c(torch.ones(2), 3)
    torch.testing.assert_close(c(torch.ones(2), 1), torch.full((2,), 2.0))


def test_torch_raises():
    def g(x, y):
        return torch.sin(x) @ y

    c = magneto.compile(g)
    a, b = torch.ones(2, 3), torch.ones(4, 5)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        c(a, b)
    torch.testing.assert_close(c(a, a.T), g(a, a.T))


def test_vmap_and_modes_around_a_compiled_function():
    c = magneto.compile(lambda x: (x * 2).sum())
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.vmap(c)(x), (x * 2).sum(1))
    torch.testing.assert_close(torch.func.grad(c)(x), torch.full((3, 4), 2.0))


def test_data_of_a_tensor():
    def g(x):
        y = x * 2
        return y + len(y.tolist()) + float(y[0]) + int(y.numpy().shape[0])

    c = magneto.compile(g)
    for _ in range(2):
        torch.testing.assert_close(c(torch.ones(3)), g(torch.ones(3)))
