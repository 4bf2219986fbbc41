"""Makes a failing text of Python smaller by taking away statements, as long as it fails in the same way."""

import ast


def statements(tree):
    """Every list of statements, outermost first."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], (ast.stmt, ast.excepthandler)):
                yield node, name, block


def smaller(text):
    count = sum(1 for _ in statements(ast.parse(text)))
    for which in range(count):
        size = len(list(statements(ast.parse(text)))[which][2])
        step = max(size // 2, 1)
        while step:
            for at in range(0, size, step):
                tree = ast.parse(text)
                node, name, block = list(statements(tree))[which]
                del block[at : at + step]
                if not block and name == "body":
                    block.append(ast.Pass())
                yield ast.unparse(ast.fix_missing_locations(tree)) + "\n"
            step //= 2
    for which in range(count):  # a block instead of the statement around it
        tree = ast.parse(text)
        node, name, block = list(statements(tree))[which]
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)):
            continue
        for _, _, outer in statements(tree):
            if node in outer:
                at = outer.index(node)
                outer[at : at + 1] = block if name != "handlers" else []
                if outer:
                    yield ast.unparse(ast.fix_missing_locations(tree)) + "\n"
                break


def smaller_valid(text):
    """Only what is shorter, and still Python."""
    for candidate in smaller(text):
        if len(candidate) < len(text):
            try:
                compile(candidate, "<candidate>", "exec")
            except SyntaxError:
                continue
            yield candidate
