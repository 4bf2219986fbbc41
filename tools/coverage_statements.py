"""Rewrites Python code so that it notes which of its statements run."""

import ast


class Probes(ast.NodeTransformer):
    """Puts `__seen__[line] = True` before every statement but docstrings and what has to come first."""

    def __init__(self, lines):
        self.lines = lines

    def probed(self, body):
        done = []
        for number, statement in enumerate(body):
            first = (
                number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            )
            future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            if not first and not future:
                self.lines[statement.lineno] = False
                probe = ast.parse(f"__seen__[{statement.lineno}] = True").body[0]
                done.append(ast.copy_location(probe, statement))
            done.append(self.visit(statement))
        return done

    def generic_visit(self, node):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                setattr(node, field, self.probed(statements))
        for field in ("handlers", "cases"):
            for part in getattr(node, field, None) or []:
                self.visit(part)
        return node
