"""Operators that plans call as C++ does: every kind of argument, results of each kind, exceptions."""

import pytest
import torch

import magneto

MATRIX = torch.eye(5) * 6 + torch.arange(25.0).reshape(5, 5).remainder(7) * 0.3
SPD = MATRIX @ MATRIX.t()
SIGNAL = torch.sin(torch.arange(96.0)).reshape(4, 24)
IMAGE = torch.cos(torch.arange(2 * 3 * 9 * 8.0)).reshape(2, 3, 9, 8)

CALLS = {
    "bool": lambda: torch.linalg.cholesky_ex(SPD, upper=True),
    "string": lambda: torch.linalg.qr(MATRIX, mode="complete"),
    "no string": lambda: torch.linalg.svdvals(MATRIX, driver=None),
    "sizes": lambda: torch.fft.fft2(SIGNAL, dim=(0, 1)),
    "optional sizes": lambda: torch.fft.irfft(torch.fft.rfft(SIGNAL, n=17), n=20),
    "number": lambda: torch.renorm(MATRIX, 2, 0, 1.5),
    "whole number": lambda: torch.renorm(MATRIX, 1, 0, 2),
    "float on the stack": lambda: torch.histc(SIGNAL, 7, -1, 1),
    "optional float": lambda: torch.linalg.pinv(MATRIX, rtol=0.25),
    "optional number": lambda: torch.linalg.matrix_rank(MATRIX, tol=0.5),
    "integer": lambda: torch.matrix_exp(MATRIX / 9),
    "dtype": lambda: torch.logcumsumexp(MATRIX, 1).to(torch.float64),
    "factory": lambda: torch.kaiser_window(16, periodic=False, beta=8.5, dtype=torch.float64),
    "optional tensor": lambda: torch.bincount(
        torch.tensor([1, 4, 2, 1, 7]), weights=torch.tensor([0.5, 1, 2, 3, 0.25]), minlength=9
    ),
    "no tensor": lambda: torch.bincount(torch.tensor([1, 4, 2, 1, 7])),
    "tensors": lambda: torch.block_diag(MATRIX, SIGNAL),
    "two results": lambda: torch.linalg.eigh(SPD),
    "three results": lambda: torch.linalg.lu(MATRIX),
    "four results": lambda: torch.linalg.lstsq(MATRIX, SPD),
    "resized": lambda: torch.nn.functional.fractional_max_pool2d(
        IMAGE, 2, output_size=(4, 3), _random_samples=torch.full((2, 3, 2), 0.3)
    ),
    "gradients": lambda: torch.linalg.solve_triangular(
        MATRIX, SPD, upper=True, left=False, unitriangular=True
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_arrive(name: str) -> None:
    want, compiled = CALLS[name](), magneto.compile(CALLS[name])
    for _ in range(3):
        got = compiled()
        for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, want)), strict=True):
            assert a.dtype == b.dtype and a.stride() == b.stride()
            torch.testing.assert_close(
                a, b, rtol=1e-5, atol=1e-5
            )  # LAPACK rounds by the alignment of its memory


def test_random_numbers_come_from_the_generator() -> None:
    compiled = magneto.compile(lambda p: (torch.multinomial(p, 3), torch.randperm(9)))
    p = torch.rand(4, 8)
    for seed in range(3):
        torch.manual_seed(seed)
        want = torch.multinomial(p, 3), torch.randperm(9)
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        got = compiled(p)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True)) and torch.equal(
            torch.get_rng_state(), state
        )


@pytest.mark.parametrize(
    "f",
    [torch.linalg.cholesky, torch.linalg.inv, lambda m: torch.linalg.solve(m, m)],
    ids=["cholesky", "inv", "solve"],
)
def test_exceptions_are_eagers(f) -> None:
    compiled = magneto.compile(f)
    torch.testing.assert_close(compiled(SPD), f(SPD))
    for _ in range(20):
        with pytest.raises(torch.linalg.LinAlgError) as got:
            compiled(torch.zeros(5, 5))
        with pytest.raises(torch.linalg.LinAlgError) as want:
            f(torch.zeros(5, 5))
        assert str(got.value) == str(want.value)
        torch.testing.assert_close(compiled(SPD), f(SPD))


def test_an_exception_in_a_thread() -> None:
    import threading

    compiled, caught = magneto.compile(torch.linalg.cholesky), []
    compiled(SPD)

    def work() -> None:
        for _ in range(50):
            try:
                compiled(torch.zeros(5, 5))
            except torch.linalg.LinAlgError as e:
                caught.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(caught) == 200
