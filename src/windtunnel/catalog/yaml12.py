"""YAML 1.2 core schema from parser events to plain values, in one pass that can stop at any event.

Tags, merge keys and documents after the first are refused; depth, aliases and what they expand to are bounded.
``on``, ``yes``, ``1:30``, ``017`` as 17 and ``2025-02`` as text: all as YAML 1.2 says, unlike YAML 1.1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from ruamel.yaml import events

MAX_DEPTH = 64
MAX_ALIASES = 100
MAX_EXPANDED = 100_000
"""Values that aliases may add to a document in all."""
MAX_VALUES = 65_536
"""Values of a document, unless the caller allows more."""

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_FIRST = frozenset("0123456789+-.")
_LONGEST_NUMBER = 400

_OPENS = (events.MappingStartEvent, events.SequenceStartEvent)
_CLOSES = (events.MappingEndEvent, events.SequenceEndEvent)
_MISSING = object()


class Refusal(Exception):
    """Why a document is refused: what was found, the rule, the remedy, and the line where known (from 1)."""

    def __init__(self, value: str, rule: str, remedy: str, line: int | None = None) -> None:
        super().__init__(rule)
        self.value = value
        self.rule = rule
        self.remedy = remedy
        self.line = line


def resolve(text: str) -> object:
    """The value of a plain scalar under the YAML 1.2 core schema (chapter 10.3.2)."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if text[0] not in _FIRST:
        return text
    if len(text) <= _LONGEST_NUMBER and _INT.fullmatch(text):
        return int(text, 0 if text[:2] in ("0o", "0x") else 10)
    if _NOT_FINITE.fullmatch(text) or (_FLOAT.fullmatch(text) and math.isinf(float(text))):
        raise Refusal(text[:40], "a number must be finite", "write a finite number, or quote it if it is text")
    return float(text) if len(text) <= _LONGEST_NUMBER and _FLOAT.fullmatch(text) else text


class _Node:
    """A mapping or list under construction; ``size`` counts the nodes below it, expanded aliases included."""

    __slots__ = ("anchor", "key", "size", "value")

    def __init__(self, value: dict[Any, Any] | list[Any] | None, anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: object = _MISSING
        self.size = 1


class _Builder:
    def __init__(self, max_values: int) -> None:
        self.left = max_values
        self.max_values = max_values
        self.stack: list[_Node] = []
        self.anchors: dict[str, tuple[object, int]] = {}
        self.documents = 0
        self.aliases = 0
        self.expanded = 0
        self.result: object = _MISSING

    def feed(self, event: Any) -> None:
        if isinstance(event, events.ScalarEvent):
            self._no_tag(event)
            value = event.value if event.style else resolve(event.value)
            self._remember(event.anchor, value, 1)
            self._add(value, 1)
        elif isinstance(event, _OPENS):
            self._open(event)
        elif isinstance(event, _CLOSES):
            node = self.stack.pop()
            self._remember(node.anchor, node.value, node.size)
            self._add(node.value, node.size)
        elif isinstance(event, events.AliasEvent):
            self._alias(str(event.anchor))
        elif isinstance(event, events.DocumentStartEvent):
            self._start()

    def _start(self) -> None:
        self.documents += 1
        if self.documents > 1:
            raise Refusal("---", "a file holds one document", "split the documents into files of their own")

    def _open(self, event: Any) -> None:
        self._no_tag(event)
        if len(self.stack) >= MAX_DEPTH:
            rule = f"values may be nested {MAX_DEPTH} deep at most"
            raise Refusal("", rule, "flatten the value")
        self.stack.append(_Node({} if isinstance(event, events.MappingStartEvent) else [], event.anchor))

    def _no_tag(self, event: Any) -> None:
        tag = getattr(event, "tag", None)  # ruamel: a Tag, text or None, by version and event
        if tag is not None and str(tag) not in ("", "None"):
            raise Refusal(str(tag)[:80], "tags are not part of the format", "remove the tag; quote text instead")

    def _remember(self, anchor: str | None, value: object, size: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = (value, size)

    def _alias(self, name: str) -> None:
        if name not in self.anchors:
            rule = "an alias must name an anchor that is complete before it"
            raise Refusal(f"*{name}"[:80], rule, "write the value out")
        value, size = self.anchors[name]
        self.aliases += 1
        self.expanded += size
        if self.aliases > MAX_ALIASES or self.expanded > MAX_EXPANDED:
            rule = f"a file may use {MAX_ALIASES} aliases that add {MAX_EXPANDED} values at most"
            raise Refusal(f"*{name}"[:80], rule, "write the values out")
        self._add(value, size)

    def _add(self, value: object, size: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise Refusal("", f"a file of this kind holds {self.max_values} values at most", "split the file")
        if not self.stack:
            self.result = value
            return
        node = self.stack[-1]
        node.size += size
        if isinstance(node.value, list):
            node.value.append(value)
        elif node.key is _MISSING:
            node.key = self._key(node.value, value)
        elif node.value is not None:
            node.value[node.key] = value
            node.key = _MISSING

    def _key(self, mapping: dict[Any, Any] | None, key: object) -> object:
        if isinstance(key, bool) or not isinstance(key, (str, int)):
            raise Refusal(str(key)[:80], "a key must be text or a whole number", "quote the key")
        if key == "<<":
            raise Refusal("<<", "merge keys are not part of YAML 1.2", "write the keys out")
        if mapping is not None and key in mapping:
            raise Refusal(str(key)[:80], "a key may be given once", "remove one of the two")
        return key


def build(stream: Iterable[Any], max_values: int = MAX_VALUES) -> object:
    """The document of a stream of ruamel parser events as dict, list, text, number, boolean or None.

    Raises:
        Refusal: with the line of the event at which the document broke a rule.
    """
    builder = _Builder(max_values)
    for event in stream:
        try:
            builder.feed(event)
        except Refusal as refusal:
            refusal.line = event.start_mark.line + 1 if event.start_mark is not None else None
            raise
    if builder.result is _MISSING or builder.result is None:
        raise Refusal("", "the file holds no value", "write one; `windtunnel show schema` prints the format")
    return builder.result
