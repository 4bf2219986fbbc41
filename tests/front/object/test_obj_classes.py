"""Classes and instances: attribute lookup, operators, descriptors, metaclasses, dataclasses, enums, typing, weak references."""

import gc

import torch

import magneto
import obj_harness

PROGRAMS = obj_harness.load(
    "classes", "class_protocols", "class_library", "instances", "caches", "made_inside"
)


def test_classes_made_by_a_recording_are_not_listed():
    class Base:
        pass

    def f(x):
        class A(Base):
            k = 2

        return x * A.k, A

    gc.collect()
    gc.disable()
    try:
        c = magneto.compile(f)
        made = [c(torch.ones(2))[1] for _ in range(3)]
        assert Base.__subclasses__() == made
    finally:
        gc.enable()


test_program, test_forced_breaks = obj_harness.tests(PROGRAMS)
