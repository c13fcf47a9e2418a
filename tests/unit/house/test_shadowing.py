"""No parameter or local variable has the name of an import, or of a function or class of its module.

ruff knows shadowed builtins (A) and names that are defined twice (F811), but not these.
"""

from __future__ import annotations

import symtable
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = sorted(ROOT.glob("*/podium*/__init__.py"))
FUNCTIONS = ("def f(value): pass", "async def f(value): pass", "def f():\n    value = 1", "f = lambda value: value")
IN_A_METHOD = "class C:\n    def f(self):\n        for value in (): pass"


def shadowed(source: str, name: str = "module.py") -> list[str]:
    """Return one line for each local name that hides an import, a function or a class of the module."""
    module = symtable.symtable(source, name, "exec")
    scopes = {child.get_name() for child in module.get_children() if child.get_type() in ("function", "class")}
    defined = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_imported()}
    defined |= {symbol.get_name() for symbol in module.get_symbols() if symbol.get_name() in scopes}
    defined.discard("annotations")  # from __future__ import annotations
    return [
        f"{name}:{table.get_lineno()}: {symbol.get_name()} in {table.get_name()}"
        for table in _functions(module)
        for symbol in table.get_symbols()
        if symbol.is_local() and not symbol.is_imported() and symbol.get_name() in defined
    ]


def _functions(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Yield the functions at any depth; names in the body of a class hide nothing from its methods."""
    for child in table.get_children():
        if child.get_type() == "function":
            yield child
        yield from _functions(child)


@pytest.mark.parametrize("package", PACKAGES, ids=[path.parent.name for path in PACKAGES])
def test_no_local_name_hides_a_name_of_its_module(package: Path) -> None:
    found: list[str] = []
    for path in sorted(package.parent.rglob("*.py")):
        if not path.stem.endswith(("_pb2", "_pb2_grpc")):
            found += shadowed(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    assert found == []


@pytest.mark.parametrize("code", [*FUNCTIONS, IN_A_METHOD])
@pytest.mark.parametrize(
    "above", ["import value", "from x import y as value", "def value(): pass", "class value: pass"]
)
def test_hidden_names_are_found(above: str, code: str) -> None:
    assert len(shadowed(f"{above}\n{code}\n")) == 1


@pytest.mark.parametrize(
    "code", ["def f(other): pass", "def f():\n    global value\n    value = 1", "def f(): return value"]
)
def test_other_names_are_allowed(code: str) -> None:
    assert shadowed(f"import value\n{code}\n") == []
