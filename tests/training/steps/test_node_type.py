"""Attributes of gradient nodes and their classes, as PyTorch's C++ asks for them: by C strings."""

from __future__ import annotations

import ctypes

import pytest
import torch

import magneto

_get = ctypes.pythonapi.PyObject_GetAttrString
_get.restype = ctypes.py_object
_get.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _node():
    x = torch.randn(4, requires_grad=True)
    return magneto.compile(lambda x: x.sin() * x)(x).grad_fn


def test_c_strings_find_what_strs_find():
    node = _node()
    assert "Magneto" in type(node).__name__
    for name in ("apply", "saved_tensors", "clear_saved_tensors_on_access", "metadata", "__class__"):
        assert _get(node, name.encode()) == getattr(node, name), name
    for name in ("clear_saved_tensors_on_access", "boxed_grads_call", "__name__", "mro"):
        assert _get(type(node), name.encode()) == getattr(type(node), name), name


def test_missing_attributes_raise():
    node = _node()
    for o in (node, type(node)):
        with pytest.raises(AttributeError):
            _get(o, b"forward_pass")


def test_the_node_finds_its_apply_without_a_new_str():
    """Types that fill tp_getattr get the C string itself."""
    tp_getattr = ctypes.c_void_p.from_address(id(type(_node())) + 64)
    usual = ctypes.c_void_p.from_address(id(torch._C._FunctionBase) + 64)
    assert tp_getattr.value
    assert not usual.value
