"""tools/check_arguments.py: arguments of ops are named, by names that schemas have."""

import pathlib
import runpy

import pytest

ROOT = pathlib.Path(__file__).parents[2]
CHECK = runpy.run_path(str(ROOT / "tools/check_arguments.py"))
READERS, KNOWN = CHECK["readers"](ROOT), CHECK["parameters"](ROOT / "src/ir/graph")


def found(text):
    return [what for _, what in CHECK["problems"](text, READERS, KNOWN)]


@pytest.mark.parametrize(
    "text, what",
    [
        ("double eps = n->arg[7].u.f;", "n->arg[7]: name the argument"),
        ("*node->arg[0] = x;", "node->arg[0]: name the argument"),
        ("rw->n.arg[1] = x;", "rw->n.arg[1]: name the argument"),
        ("v = mg_infer_nth(in, 2);", "mg_infer_nth(in, 2): name the argument"),
        ("pt_arg(p, 0)", "pt_arg: 0 is no name"),
        ("lw_arg_int(L->g, n, NULL, &v)", "lw_arg_int: NULL is no name"),
        ('lw_arg_float(L->g, n, "epsilom", 0)', 'lw_arg_float: no schema has a parameter "epsilom"'),
        ('lw_arg(n, lw_either(n, "sel", "self"))', 'lw_either: no schema has a parameter "sel"'),
        ('norm_has(n, train ? "weigth" : "bias")', 'norm_has: no schema has a parameter "weigth"'),
        ('ARG("dtpye")', 'ARG: no schema has a parameter "dtpye"'),
    ],
)
def test_a_position_or_a_name_that_no_schema_has_is_refused(text, what):
    assert found(text) == [what]


@pytest.mark.parametrize(
    "text",
    [
        'lw_arg_float(L->g, n, lw_either(n, "eps", "epsilon"), 1e-5)',
        "for (int k = 0; k < n->narg; k++) use(&n->arg[k]);",
        "x = n->arg[MM_bias];",
        "/* n->arg[3] is eps */",
        'lw_temp(L, dt, device, 0, NULL, "no parameter", &out)',
    ],
)
def test_names_counted_and_named_positions_are_taken(text):
    assert found(text) == []


def test_the_sources_are_clean(capsys):
    assert CHECK["main"](ROOT) == 0
    assert capsys.readouterr().out == "arguments: ok\n"


def test_schemas_are_read_whole():
    assert {
        "self",
        "other",
        "normalized_shape",
        "exponential_average_factor",
        "scale_factors",
        "repeats",
    } <= KNOWN
