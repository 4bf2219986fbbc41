"""Every instruction of this CPython is recorded, or is one of the few that are left to CPython; the programs use them all."""

import dis
import opcode
import types

import lang_annotations
import lang_exc
import lang_fun
import lang_gen
import lang_misc
import lang_more
import lang_opcodes
import lang_repro
from lang_registry import PROGRAMS
from magneto import _magneto

USED = (lang_annotations, lang_exc, lang_fun, lang_gen, lang_misc, lang_more, lang_opcodes, lang_repro)
ASYNC = {"ASYNC_GEN_WRAP", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "GET_AITER", "GET_ANEXT", "GET_AWAITABLE"}
# Not in functions, or no instruction of its own: a prefix, markers of the interpreter.
ELSEWHERE = {
    "IMPORT_STAR",
    "PRINT_EXPR",
    "EXTENDED_ARG",
    "INTERPRETER_EXIT",
    "RESERVED",
    "EXIT_INIT_CHECK",
    "ENTER_EXECUTOR",
}
# Emitted in places that Python code does not choose, or only by `from x import *`, class bodies and the like.
UNSEEN = {"CACHE", "NOP", "COPY_FREE_VARS_", "LOAD_LOCALS", "LOAD_FROM_DICT_OR_GLOBALS"}


def instructions():
    return {n: c for n, c in opcode.opmap.items() if c < 256 and not n.startswith("INSTRUMENTED_")}


def test_all_are_known():
    unknown = {n for n, c in instructions().items() if _magneto.bytecode(c) is None}
    assert unknown - ASYNC - ELSEWHERE == set()


def codes(code):
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from codes(c)


def test_programs_use_them_all():
    used = {i.opname for p in PROGRAMS for c in codes(p[1].__code__) for i in dis.get_instructions(c)}
    known = {n for n, c in instructions().items() if _magneto.bytecode(c) is not None}
    assert known - used - UNSEEN == set()
