"""Annotations that stay text: from 3.14 on, only this import makes the instruction that sets them up."""

from __future__ import annotations

from lang_registry import prog


@prog
def annotated_class_scope(x):
    class A:
        first: int = 3
        second: list[str]

        def method(self, y: float = 2.0) -> float:
            return y

    return x * A.first, sorted(A.__annotations__), A().method(), sorted(A.method.__annotations__.items())
