"""API reference: docs/reference/api.md, made from the signatures and docstrings of the public names.

`python -m tidemark.lab.api_reference` writes the page; a test fails when the page is stale. Fields of
classes, and values, are described by the `#:` comment above them.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_overloads, is_typeddict

PAGE = Path("docs/reference/api.md")
COMMAND = "./run api"
#: A signature that is longer is written with a line for each parameter.
SIGNATURE_CHARACTERS_MAX = 100

_HEAD = f"""# API reference

This page is made from the docstrings of the code by `{COMMAND}`: do not edit it. [The client](../client.md)
and [queues](../queue.md) explain how the parts work together. Ticks are microseconds since 1970; times are in
seconds where nothing else is said.
"""
#: The modules of the page, each with a sentence about it.
_MODULES = {
    "tidemark": "For programs with asyncio.",
    "tidemark.sync": "The same for programs without asyncio: every method blocks.",
    "tidemark.queue": "Topics and four verbs, exactly once.",
    "tidemark.spark": "History as a DataFrame. The data source needs no import: see [Spark](../spark.md).",
    "tidemark.admin": "What administrators ask of brokers and overlays, as a library.",
}
#: Members of classes that Tidemark's own parts use beyond what applications need are not shown.
_SHOWN = {
    "Schema": ("parse", "of", "encode", "decode", "accessor"),
    "EventBatch": ("count", "ticks"),
    "BatchBuilder": ("add", "build"),
    "Shape": (),
}
_SPECIAL = ("__getitem__", "__iter__")
#: Classes that come before the others, in this order.
_FIRST = (
    "Client", "Subscription", "Transaction", "Event", "Batch", "Gap", "CheckpointToken", "ConnectOptions",
)  # fmt: skip


class UndocumentedError(Exception):
    """Something public has no docstring."""


class Source:
    """The text of a module, for what objects do not know of themselves: order, and comments above names."""

    def __init__(self, module: ModuleType) -> None:
        self._text = inspect.getsource(module)
        self.tree = ast.parse(self._text)

    @cached_property
    def _lines(self) -> list[str]:
        return self._text.splitlines()

    def comment(self, node: ast.stmt) -> str:
        """The `#:` comment above a statement, "" if there is none."""
        found: list[str] = []
        above = node.lineno - 2
        while above >= 0 and self._lines[above].strip().startswith("#:"):
            found.insert(0, self._lines[above].strip().removeprefix("#:").strip())
            above -= 1
        return " ".join(found)

    def value(self, name: str) -> tuple[str, str]:
        """The expression and the comment of a name that the module assigns; both "" if it does not."""
        for node in self.tree.body:
            if not isinstance(node, ast.Assign):
                continue
            if any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
                return ast.unparse(node.value), self.comment(node)
        return "", ""

    def fields(self, kind: type) -> Iterator[tuple[str, str, str]]:
        """Name, type and comment of each annotated field of a class."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                for each in node.body:
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                        yield each.target.id, ast.unparse(each.annotation), self.comment(each)

    def home(self, name: str) -> str:
        """The module from which this one imports a name."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
                return str(node.module)
        return ""


@cache
def _source(module: str) -> Source:
    return Source(import_module(module))


def render() -> str:
    """The text of the page; UndocumentedError if something public has no docstring."""
    parts = [_HEAD]
    for name, sentence in _MODULES.items():
        parts.append(f"## {name}\n\n{sentence}\n")
        parts += _module(name)
    return "\n".join(parts).rstrip() + "\n"


def _module(name: str) -> Iterator[str]:
    module = import_module(name)
    if hasattr(module, "__all__"):
        yield from _names(module, [(each, getattr(module, each)) for each in module.__all__])
        return
    # A package without names of its own: those of its modules.
    for found in pkgutil.iter_modules(module.__path__, f"{name}."):
        part = import_module(found.name)
        own = [
            (each, value)
            for each, value in vars(part).items()
            if not each.startswith("_") and getattr(value, "__module__", "") == found.name
        ]
        if own:
            yield f"### {found.name}\n\n{_document(part, found.name)}\n"
            yield from _names(part, own, level=4)


def _names(module: ModuleType, names: list[tuple[str, Any]], level: int = 3) -> Iterator[str]:
    """Functions first, then classes, then values, then errors."""
    names = [(name, value) for name, value in names if not inspect.ismodule(value)]
    rank = {name: place for place, name in enumerate(_FIRST)}
    names.sort(key=lambda each: rank.get(each[0], len(rank)))
    errors = [value for _, value in names if inspect.isclass(value) and issubclass(value, Exception)]
    others = [(name, value) for name, value in names if value not in errors]
    for name, value in others:
        if inspect.isfunction(value):
            yield _function(f"{module.__name__}.{name}", name, value, level)
    for name, value in others:
        if inspect.isclass(value) and not _is_alias(name, value):
            yield _class(f"{module.__name__}.{name}", name, value, level)
    values = [name for name, value in others if _is_alias(name, value)]
    if values:
        yield _values(module, values, level)
    if errors:
        yield _errors(errors, level)


def _is_alias(name: str, value: Any) -> bool:
    """Is this a value, or a name for a type that has another name?"""
    return not inspect.isfunction(value) and getattr(value, "__name__", "") != name


def _function(qualified: str, name: str, function: Any, level: int) -> str:
    return f"{'#' * level} {name}\n\n{_code(qualified, function)}\n\n{_document(function, qualified)}\n"


def _class(qualified: str, name: str, kind: type, level: int) -> str:
    parts = [f"{'#' * level} {name}\n\n{_document(kind, qualified)}\n"]
    made = vars(kind).get("__init__")
    # A constructor that says whom it is for is not for applications.
    if made is not None and not (made.__doc__ or "For ").startswith("For "):
        parts.append(f"{_code(qualified, made)}\n\n{_document(made, qualified)}\n")
    fields = [
        f"| `{field}` | `{_cell(type_)}` | {_cell(_capital(comment))} |"
        for field, type_, comment in _source(kind.__module__).fields(kind)
        if not field.startswith("_")
    ]
    if fields and (hasattr(kind, "__dataclass_fields__") or is_typeddict(kind) or hasattr(kind, "_fields")):
        parts.append("\n".join(["| field | type | |", "|---|---|---|", *fields]) + "\n")
    members = _members(name, kind)
    attributes = [(each, value) for each, value in members if isinstance(value, property | cached_property)]
    if attributes:
        lines = ["| attribute | type | |", "|---|---|---|"]
        lines += [_attribute(qualified, each, value) for each, value in attributes]
        parts.append("\n".join(lines) + "\n")
    parts += [_method(qualified, each, level + 1) for each in members if each not in attributes]
    return "\n".join(parts)


def _members(name: str, kind: type) -> list[tuple[str, Any]]:
    """The methods and properties to show in the order of the source, with those of Tidemark's own bases."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("tidemark."):
            found |= vars(base)
    shown = _SHOWN.get(name)
    return [
        (each, value)
        for each, value in found.items()
        if (each in shown if shown is not None else _is_shown(each, value))
    ]


def _is_shown(name: str, value: Any) -> bool:
    is_member = inspect.isfunction(value) or isinstance(value, property | classmethod | cached_property)
    if name in _SPECIAL:
        return bool(getattr(value, "__doc__", ""))
    return is_member and not name.startswith("_")


def _attribute(qualified: str, name: str, value: property | cached_property[Any]) -> str:
    getter = value.fget if isinstance(value, property) else value.func
    assert getter is not None
    type_ = inspect.signature(getter).return_annotation
    return f"| `{name}` | `{_cell(type_)}` | {_cell(_line(_document(value, f'{qualified}.{name}')))} |"


def _method(qualified: str, member: tuple[str, Any], level: int) -> str:
    name, value = member
    kind = qualified.rsplit(".", 1)[1]
    function = value.__func__ if isinstance(value, classmethod) else value
    said = _document(value, f"{qualified}.{name}")
    return f"{'#' * level} {kind}.{name}\n\n{_code(f'{kind}.{name}', function)}\n\n{said}\n"


def _values(module: ModuleType, values: list[str], level: int) -> str:
    lines = [f"{'#' * level} Values and types\n", "| name | value | |", "|---|---|---|"]
    for name in values:
        source = _source(module.__name__)
        shown, said = source.value(name)
        if not shown:
            shown, said = _source(source.home(name)).value(name)
        if not said:
            raise UndocumentedError(f"{module.__name__}.{name} has no comment that begins with `#:` above it")
        lines.append(f"| `{name}` | `{_cell(shown)}` | {_cell(_capital(said))} |")
    return "\n".join(lines) + "\n"


def _errors(errors: list[type[Exception]], level: int) -> str:
    lines = [
        f"{'#' * level} Errors\n",
        "| error | is a | fields | |",
        "|---|---|---|---|",
    ]
    for error in sorted(errors, key=lambda each: inspect.getsourcelines(each)[1]):
        fields = ", ".join(f"`{each}`" for each in _error_fields(error))
        said = _line(_document(error, error.__name__))
        lines.append(f"| `{error.__name__}` | `{error.__bases__[0].__name__}` | {fields} | {_cell(said)} |")
    return "\n".join(lines) + "\n"


def _error_fields(error: type[Exception]) -> list[str]:
    """The attributes that the constructors of an error and of its bases assign."""
    found: dict[str, None] = {}
    for base in reversed(error.__mro__):
        made = vars(base).get("__init__")
        if inspect.isfunction(made):
            tree = ast.parse(textwrap.dedent(inspect.getsource(made)))
            stored = (each for each in ast.walk(tree) if isinstance(each, ast.Attribute))
            found |= {each.attr: None for each in stored if isinstance(each.ctx, ast.Store)}
    return list(found)


def _code(qualified: str, function: Any) -> str:
    signatures = get_overloads(function) or [function]
    return "```python\n" + "\n".join(_signature(qualified, each) for each in signatures) + "\n```"


def _signature(qualified: str, function: Any) -> str:
    signature = inspect.signature(function)
    parts: list[str] = []
    star = False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        parts.append(_parameter(parameter))
    returned = signature.return_annotation
    end = "" if function.__name__ == "__init__" else f" -> {returned}"
    word = "await " if inspect.iscoroutinefunction(function) else ""
    line = f"{word}{qualified}({', '.join(parts)}){end}"
    if len(line) <= SIGNATURE_CHARACTERS_MAX:
        return line
    return f"{word}{qualified}(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    text = f"{stars}{parameter.name}: {parameter.annotation}"
    if parameter.default is parameter.empty:
        return text
    default = parameter.default
    return f"{text} = {default.name if isinstance(default, Enum) else repr(default)}"


def _document(thing: Any, name: str) -> str:
    said = inspect.getdoc(thing)
    if not said:
        raise UndocumentedError(f"{name} has no docstring")
    return said


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write the page into the working directory's docs, and say so."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render())
    sys.stdout.write(f"wrote {PAGE}\n")


if __name__ == "__main__":
    main()
