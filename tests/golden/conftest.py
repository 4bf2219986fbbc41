"""These tests run build/mgopt; the Python package is not involved."""

import pytest


@pytest.fixture(autouse=True)
def clean_compiler():
    yield
