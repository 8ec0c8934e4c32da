"""Each folder imports only the folders below it, and nothing is imported inside a function but the lazily loaded."""
import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "ir": {"ir"},
    "tracer": {"tracer", "ir"},
    "autodiff": {"autodiff", "tracer", "ir"},
    "kernels": {"kernels", "ir"},
    "lower": {"lower", "kernels", "ir"},
    "api": {"api", "lower", "kernels", "autodiff", "tracer", "ir"},
}
LAZY_LOADER = "lower/runtime/lazy.py"
FILES = sorted(path for folder in MAY_IMPORT for path in (ROOT / folder).rglob("*.py"))


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "loopwright":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "api"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_keep_to_the_layers(path):
    name = path.relative_to(ROOT)
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        for module in imported(node):
            layer = layer_of(module)
            assert layer is None or layer in MAY_IMPORT[name.parts[0]], f"{name}:{node.lineno} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_import_hides_in_a_function(path):
    name = path.relative_to(ROOT)
    if str(name) == LAZY_LOADER:
        return
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for node in ast.walk(function):
                assert not imported(node), f"{name}:{node.lineno} imports inside a function"


def test_the_architecture_page_names_every_module():
    page = (ROOT / "docs" / "architecture.md").read_text()
    modules = [p for folder in MAY_IMPORT for p in (ROOT / folder).glob("*.py") if p.name != "__init__.py"]
    assert [str(p.relative_to(ROOT)) for p in modules if f"`{p.name}`" not in page] == []
