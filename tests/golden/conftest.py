"""Most of these tests run build/mgopt alone; test_guard_text.py resets the compiler itself."""

import pytest


@pytest.fixture(autouse=True)
def clean_compiler():
    yield
