"""lazy_property: a property that is computed when it is first asked for, by any thread, without a lock.

`functools.cached_property` of Python 3.11 has one lock for all instances of a class: while a thread parses a
schema of thousands of fields, the event loop would wait for it at the first message of any other schema. Two
threads that ask at once both compute here, and come to the same.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeVar, overload

Value = TypeVar("Value", covariant=True)


class lazy_property(cached_property[Value]):  # noqa: N801  (used like a property)
    """A property of immutable objects whose value is kept in the object's dictionary."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> lazy_property[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Value: ...

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        """Compute the value and keep it; the next time the dictionary has it, and this is not called."""
        if instance is None:
            return self
        assert self.attrname is not None
        value = instance.__dict__[self.attrname] = self.func(instance)
        return value
