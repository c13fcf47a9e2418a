"""Ship a training function by its source: a script that calls the function with a trial's parameters.

The function runs in another process, often on another machine. It sees its arguments and what it imports itself, but
nothing else of the module or notebook that defines it.
"""

from __future__ import annotations

import ast
import base64
import builtins
import inspect
import json
import symtable
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from podium_api.errors import SearchError

MAX_SOURCE_BYTES = 64 << 10  # an environment variable of Linux holds 128 KiB, and base64 adds a third
SOURCE_VARIABLE = "TRAIN_SOURCE"
# writes the script to a file, so that tracebacks show its lines, and becomes it
BOOTSTRAP = (
    "import base64, os, sys, tempfile; "
    "path = os.path.join(tempfile.mkdtemp(prefix='podium-'), 'train.py'); "
    f"open(path, 'wb').write(base64.b64decode(os.environ['{SOURCE_VARIABLE}'])); "
    "os.execv(sys.executable, [sys.executable, '-u', path])"
)
SCRIPT = '''"""Made by podium.tune from the function {name}."""
import json, os, sys
sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))  # has the module podium.trial

{source}

if __name__ == "__main__":
    {name}(**{{**json.loads({arguments!r}), **json.loads(os.environ["PODIUM_PARAMS"])}})
'''


def container_of(function: Callable[..., Any], arguments: Mapping[str, Any], python: str) -> dict[str, Any]:
    """Return `command` and `env` of a container that runs the function. Raises SearchError with the cure."""
    encoded = base64.b64encode(script_of(function, arguments).encode()).decode()
    return {"command": [python, "-c", BOOTSTRAP], "env": [{"name": SOURCE_VARIABLE, "value": encoded}]}


def script_of(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """Return the script that calls the function with `arguments` and the parameters of its trial."""
    name = getattr(function, "__name__", repr(function))
    if not inspect.isfunction(function) or not name.isidentifier():
        raise _refused(name, "is not a function that `def` defines", "define it with def, outside of a class")
    source = _source(function, name)
    tree = ast.parse(source)
    defined = tree.body[0]
    if not isinstance(defined, ast.FunctionDef) or defined.decorator_list:
        raise _refused(name, "is a coroutine or has a decorator", "call the decorator's work inside the function")
    outside = sorted(set(_outside(symtable.symtable(source, name, "exec"))) - {name})
    if outside:
        raise _refused(
            name,
            f"uses {', '.join(outside)} from outside of itself",
            "import or define that inside the function, or pass it as an argument",
        )
    try:
        script = SCRIPT.format(name=name, source=source.strip(), arguments=json.dumps(dict(arguments), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SearchError(
            "InvalidArguments", f"arguments must be values of JSON ({error}); build other values inside the function"
        ) from error
    if len(script.encode()) > MAX_SOURCE_BYTES:
        raise _refused(
            name, f"has more than {MAX_SOURCE_BYTES} bytes of source", "put it into an image, give a command"
        )
    return script


def check_signature(function: Callable[..., Any], names: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raise SearchError unless the function can be called with exactly these names."""
    try:
        inspect.signature(function).bind(**dict.fromkeys({**arguments, **names}))
    except TypeError as error:
        raise SearchError(
            "InvalidArguments",
            f"{function.__name__} cannot be called with the names of `space` and `arguments`: {error}",
        ) from error


def _source(function: Callable[..., Any], name: str) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise _refused(name, f"has no source that can be read ({error})", "define it in a file or notebook") from error


def _outside(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that the table's functions read from outside and that Python itself does not have."""
    if table.get_type() == "function":
        for symbol in table.get_symbols():
            known = hasattr(builtins, symbol.get_name()) or symbol.is_imported()
            if symbol.is_global() and symbol.is_referenced() and not known:
                yield symbol.get_name()
    for child in table.get_children():
        yield from _outside(child)


def _refused(name: str, why: str, cure: str) -> SearchError:
    return SearchError("FunctionNotShippable", f"the function {name} {why}; {cure}")
