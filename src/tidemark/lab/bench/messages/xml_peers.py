"""XML as in gryphon-scalability V-D: scalars are attributes, structure is nested elements.

Paths are prepared as arrays of tags (lxml: as compiled XPath, which is faster there), so that no path is
parsed while a message is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any
from xml.dom import minidom
from xml.etree import ElementTree as etree  # noqa: N813

from lxml import etree as lxml_etree

from tidemark.lab.bench.messages.peers import Fetch, FetchSet, Json
from tidemark.lab.bench.messages.samples import Sample
from tidemark.message.types import Path


class _Xml(ABC):
    """Parse, then walk for each field."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._load: Callable[[str], Any] = int if sample.kind == "int" else str

    def encode(self, value: Json) -> bytes:
        """The message as a document."""
        root = etree.Element(self._sample.name)
        _fill(root, value)
        data: bytes = etree.tostring(root)
        return data

    def one(self, path: Path) -> Fetch:
        """Parse and walk."""
        parse, walk = self._parse, self._walk(path)
        return lambda data: walk(parse(data))

    def several(self, paths: Sequence[Path]) -> FetchSet:
        """Parse once, walk for each."""
        parse, walks = self._parse, [self._walk(path) for path in paths]

        def fetch(data: bytes) -> list[Any]:
            root = parse(data)
            return [walk(root) for walk in walks]

        return fetch

    @staticmethod
    @abstractmethod
    def _parse(data: bytes) -> Any:
        """The root element."""

    @abstractmethod
    def _walk(self, path: Path) -> Callable[[Any], Any]:
        """Returns a function that finds the field from the root element."""


class Dom(_Xml):
    """xml.dom.minidom."""

    @staticmethod
    def _parse(data: bytes) -> Any:
        return minidom.parseString(data).documentElement

    def _walk(self, path: Path) -> Callable[[Any], Any]:
        tags, name, load = path[:-1], path[-1], self._load

        def walk(element: Any) -> Any:
            for tag in tags:
                for child in element.childNodes:
                    if child.tagName == tag:
                        element = child
                        break
                else:
                    return None
            return load(element.getAttribute(name))

        return walk


class ElementTree(_Xml):
    """xml.etree.ElementTree."""

    @staticmethod
    def _parse(data: bytes) -> Any:
        return etree.fromstring(data)

    def _walk(self, path: Path) -> Callable[[Any], Any]:
        tags, name, load = path[:-1], path[-1], self._load

        def walk(element: Any) -> Any:
            for tag in tags:
                element = element.find(tag)
                if element is None:
                    return None
            return load(element.get(name))

        return walk


class Lxml(_Xml):
    """lxml.etree."""

    @staticmethod
    def _parse(data: bytes) -> Any:
        return lxml_etree.fromstring(data)

    def _walk(self, path: Path) -> Callable[[Any], Any]:
        load = self._load
        steps = "/".join((self._sample.name, *path[:-1], "@" + path[-1]))
        find = lxml_etree.XPath("/" + steps, smart_strings=False)

        def walk(root: Any) -> Any:
            found = find(root)
            return load(found[0]) if found else None

        return walk


def _fill(element: etree.Element, value: Json) -> None:
    for name, inner in value.items():
        if isinstance(inner, dict):
            _fill(etree.SubElement(element, name), inner)
        else:
            element.set(name, str(inner))
