"""A pytest plugin that notes which statements of python/magneto run.

The usual tools trace, and nothing is recorded for a compilation while somebody traces.
So each statement is preceded by an assignment that notes it.
In: COVERAGE_FOLDER.  Out: a file a process there, with the statements of each source and those that ran.
Processes that tests start are not seen.
"""

import ast
import atexit
import importlib.abc
import importlib.machinery
import json
import os
import pathlib
import sys

from coverage_statements import Probes

SEEN = {}  # source -> line of a statement -> did it run?


class Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data, path, *, _optimization=-1):
        lines = SEEN.setdefault(os.path.realpath(path), {})
        tree = ast.fix_missing_locations(Probes(lines).visit(ast.parse(data)))
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimization)

    def get_code(self, fullname):  # never from a .pyc file
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module):
        module.__dict__["__seen__"] = SEEN.setdefault(os.path.realpath(self.path), {})
        super().exec_module(module)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] != "magneto":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def save():
    text = json.dumps({path: {str(n): ran for n, ran in lines.items()} for path, lines in SEEN.items()})
    pathlib.Path(os.environ["COVERAGE_FOLDER"], f"python-{os.getpid()}.json").write_text(text)


sys.meta_path.insert(0, Finder())
atexit.register(save)
