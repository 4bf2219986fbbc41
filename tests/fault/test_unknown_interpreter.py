"""On an interpreter that the C core does not know: one message, and everything runs eagerly.

The interpreter is pretended: programs see a build without the GIL, or another version of Python.
PyTorch believes in the version, too, so that little else can be done under it.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEWER = "sys.version_info = (3, 99, 0, 'final', 0); platform.python_version = lambda: '3.99.0'"
NO_GIL = "sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1"


def run(program, pretend=NO_GIL, strict="0"):
    code = f"import platform, sys, sysconfig, warnings\nimport torch\n{pretend}\n{textwrap.dedent(program)}"
    env = {**os.environ, "MAGNETO_STRICT": strict, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "pretend, what",
    [(NEWER, "CPython 3.99.0"), (NO_GIL, r"CPython 3\.\d+\.\d+ without the GIL")],
    ids=["newer", "no-GIL"],
)
def test_the_import_says_once_what_is_not_known(pretend, what):
    done = run("import magneto; import magneto as again", pretend)
    assert done.returncode == 0, done.stderr
    said = re.findall(r"RuntimeWarning: (.*)", done.stderr)
    assert len(said) == 1 and re.fullmatch(
        rf"magneto does not know {what}: nothing is compiled, everything runs eagerly; "
        r"use CPython 3\.11 to 3\.14 with the GIL",
        said[0],
    )


def test_the_warning_is_about_the_line_that_imports():
    done = run(
        "with warnings.catch_warnings(record=True) as seen:\n    import magneto\nprint(seen[0].filename)"
    )
    assert done.stdout == "<string>\n", done.stdout + done.stderr


def test_strict_mode_makes_the_import_an_error():
    done = run("import magneto", strict="1")
    assert done.returncode == 1 and "ImportError: magneto does not know CPython 3." in done.stderr


def test_all_that_a_program_calls_works_eagerly():
    done = run("""
        warnings.simplefilter("ignore")
        import magneto
        x = torch.ones(3)
        calls = []

        @magneto.compile(fullgraph=True, dynamic=True, options={"freeze": True})
        def f(x):
            calls.append(1)
            magneto.graph_break()
            return x + 1

        for _ in range(3):
            assert torch.equal(f(x), x + 1)
        assert len(calls) == 3

        class Net(torch.nn.Linear):
            step = magneto.compile(torch.nn.Linear.forward)

        net = Net(3, 3)
        assert magneto.compile(net) is net
        net.step(x).sum().backward()
        assert net.weight.grad is not None

        assert torch.equal(magneto.disable(f)(x), x + 1)
        assert torch.equal(magneto.disable(net)(x), net(x))
        with magneto.set_stance("force_eager"):
            f(x)
        magneto.mark_dynamic(x, 0)
        assert magneto.explain(f)(x).graph_count == 0
        magneto.reset()
        assert magneto.list_backends()
    """)
    assert done.returncode == 0, done.stderr


def test_torch_compile_with_our_back_end_runs_eagerly():
    done = run("""
        warnings.simplefilter("ignore")
        import magneto
        from magneto.backend import magneto as backend
        gm = torch.fx.symbolic_trace(lambda x: x.relu() + 1)
        assert torch.equal(backend(gm, [])(torch.ones(2)), torch.full((2,), 2.0))
        magneto.install()
        f = torch.compile(lambda x: x + 1, backend="magneto")
        assert torch.equal(f(torch.ones(2)), torch.full((2,), 2.0))
        net = torch.nn.Linear(2, 2)
        assert torch.equal(torch.compile(net, backend="magneto")(torch.ones(2)), net(torch.ones(2)))
        magneto.uninstall()
    """)
    assert done.returncode == 0, done.stderr


def test_wrong_arguments_are_still_errors():
    done = run("""
        warnings.simplefilter("ignore")
        import magneto
        for wrong in [dict(mode="fast"), dict(options={"fast": 1}), dict(backend="none such")]:
            try:
                magneto.compile(len, **wrong)
            except (TypeError, ValueError) as e:
                print(type(e).__name__)
        try:
            magneto.export(lambda x: x)
        except RuntimeError as e:
            print(e)
    """)
    lines = done.stdout.splitlines()
    assert lines[:-1] == ["ValueError"] * 3, done.stderr
    assert re.fullmatch(r"magneto\.export: nothing is recorded on CPython 3\S+ without the GIL", lines[-1])


def test_the_doctor_names_the_interpreter():
    done = run("""
        warnings.simplefilter("ignore")
        from magneto import doctor
        sys.exit(doctor.main())
    """)
    assert done.returncode == 1, done.stderr
    assert re.search(
        r"Python +MISSING  CPython 3\S+ without the GIL\n +-> use CPython 3\.11 to 3\.14", done.stdout
    )
    assert "Everything runs eagerly until this is mended: Python." in done.stdout


def test_a_core_that_is_missing_where_it_should_be_is_an_error():
    done = run(
        """
        import importlib.util
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == "magneto._magneto" else find(name, *rest)
        import magneto
    """,
        pretend="",
    )
    assert done.returncode == 1 and "ImportError: magneto: the C core is missing" in done.stderr


def test_the_versions_are_the_same_everywhere():
    sys.path.insert(0, str(ROOT / "python"))
    from magneto import _interpreter

    versions = _interpreter.VERSIONS
    meson = re.search(r"language_version\(\) in \[(.*?)\]", (ROOT / "meson.build").read_text())[1]
    assert [tuple(map(int, v.strip("' ").split("."))) for v in meson.split(",")] == list(versions)
    bounds = re.search(
        r"PY_VERSION_HEX < (0x\w+) \|\| PY_VERSION_HEX >= (0x\w+)",
        (ROOT / "src/host/python/pyframe.c").read_text(),
    )
    low, high = (int(b, 16) >> 16 for b in bounds.groups())
    assert (low, high) == (3 << 8 | versions[0][1], 3 << 8 | versions[-1][1] + 1)
    setup = (ROOT / "tools/setup.sh").read_text()
    assert all(f"python3.{minor}" in setup for _, minor in versions)


def test_a_build_for_it_has_an_extension_that_is_empty(tmp_path):
    tools = pathlib.Path(sys.executable).parent
    meson = [sys.executable, tools / "meson"]
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    options = dict(cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    done = subprocess.run([*meson, "setup", tmp_path / "build", "-Dface_only=true"], **options)
    assert done.returncode == 0 and "WARNING: magneto does not know this interpreter" in done.stdout
    done = subprocess.run([*meson, "introspect", "--targets", tmp_path / "build"], **options)
    names = {
        target["name"].split(".")[0]
        for target in json.loads(done.stdout)
        if target["type"] == "shared module"
    }
    assert names == {"_no_core"}


def test_the_face_has_what_the_core_has():
    from magneto import _eager_core, _magneto

    assert _eager_core.stances == _magneto.stances
    assert _eager_core.stats().keys() == _magneto.stats().keys()


@pytest.mark.parametrize(
    "version, tested", [("2.10.0", False), ("2.11.0+cu130", True), ("2.16.0a0+git1", False)]
)
def test_a_torch_that_was_not_tested_is_named_and_compiles(version, tested):
    done = run(
        """
        import magneto
        assert magneto.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]
        assert magneto._magneto.stats()["graphs"] == 1
        from magneto import doctor
        print([f.mend for f in doctor.examine() if f.name == "torch" and not f.ok])
        """,
        pretend=f"torch.__version__ = torch.torch_version.TorchVersion({version!r})",
    )
    assert done.returncode == 0, done.stderr
    said = re.findall(r"RuntimeWarning: (.*)", done.stderr)
    assert (
        said == []
        if tested
        else re.fullmatch(
            rf"magneto was not tested with torch {re.escape(version)}: .*; pip install 'torch>=2\.11,<2\.16'",
            *said,
        )
    )
    assert tested or re.search(r"<string>:\d+: RuntimeWarning", done.stderr)  # the line that imports
    assert done.stdout.strip() == ("[]" if tested else "[\"pip install 'torch>=2.11,<2.16'\"]")


def test_the_range_of_torch_is_that_of_the_package():
    sys.path.insert(0, str(ROOT / "python"))
    from magneto import _interpreter

    low, end = ("%d.%d" % v for v in _interpreter.TORCH)
    assert f'"torch>={low},<{end}"' in (ROOT / "pyproject.toml").read_text()
    assert f"torch>={low},<{end}" in _interpreter.TORCH_ADVICE
