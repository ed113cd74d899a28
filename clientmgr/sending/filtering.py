"""A message's filter: criteria on a device's fields, nested in `all`, `any` and `not`. Compiled once a message. Pure.

A field that the device has no value for, and a version that can't be parsed, match no comparison, `!=` included; ask
for them with `exists`, or with a `not` around. A filter that can't be understood is refused by its place: sending to
too many is worse than sending to none.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.sending.filter_fields import Prepare, Read, as_scalar, attribute_named, field_named, refused

MAX_NESTING = 32

COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EQUALITY: Final = frozenset({"=", "!=", "in", "exists"})

Test = Callable[[ContactDevice], bool]


class Criterion(Protocol):
    """A node of the filter."""

    @property
    def matches(self) -> Test: ...

    def reasons(self, device: ContactDevice) -> list[str]:
        """Why a device that does not match does not, in words."""
        ...


@dataclass(frozen=True)
class Comparison:
    """One field against one value."""

    matches: Test
    read: Read
    text: str

    def reasons(self, device: ContactDevice) -> list[str]:
        value = self.read(device)
        return [f"{self.text}: the device has {'none' if value is None else repr(value)}"]


@dataclass(frozen=True)
class AllOf:
    parts: tuple[Criterion, ...]
    matches: Test

    def reasons(self, device: ContactDevice) -> list[str]:
        return [reason for part in self.parts if not part.matches(device) for reason in part.reasons(device)]


@dataclass(frozen=True)
class AnyOf:
    parts: tuple[Criterion, ...]
    matches: Test

    def reasons(self, device: ContactDevice) -> list[str]:
        return [reason for part in self.parts for reason in part.reasons(device)] or ["any of nothing"]


@dataclass(frozen=True)
class Not:
    part: Criterion
    matches: Test
    text: str

    def reasons(self, device: ContactDevice) -> list[str]:
        return [f"matches what it must not: {self.text}"]


def compile_filter(node: Any, path: str = "filter", levels: int = MAX_NESTING) -> Criterion | None:
    """The filter, ready to be asked; None: every device matches. `InvalidMessageError` tells what is wrong where."""
    return None if node is None or node == {} else _compile(node, path, levels)


def fields_of(node: Any) -> Iterator[str]:
    """The fields of a `ContactDevice` that a filter asks for. For filters that `compile_filter` has taken."""
    if node:
        if "field" in node:
            yield attribute_named(node["field"])
        for part in (*node.get("all", ()), *node.get("any", ()), node.get("not")):
            yield from fields_of(part)


def _compile(node: Any, path: str, levels: int) -> Criterion:
    if not isinstance(node, dict):
        raise refused(path, "a criterion", node)
    if not levels:
        raise InvalidMessageError(f"{path}: expected at most {MAX_NESTING} levels, got more")
    keys = set(node)
    if keys == {"all"}:
        parts = _compile_list(node["all"], f"{path}.all", levels - 1)
        return AllOf(parts, _all_of([part.matches for part in parts]))
    if keys == {"any"}:
        parts = _compile_list(node["any"], f"{path}.any", levels - 1)
        return AnyOf(parts, _any_of([part.matches for part in parts]))
    if keys == {"not"}:
        part = _compile(node["not"], f"{path}.not", levels - 1)
        return Not(part, _not(part.matches), msgspec.json.encode(node["not"]).decode())
    if {"field", "op"} <= keys <= {"field", "op", "value"}:
        return _compile_comparison(node, path)
    raise refused(path, "one of all, any and not, or field, op and value", sorted(keys))


def _compile_list(nodes: Any, path: str, levels: int) -> tuple[Criterion, ...]:
    if not isinstance(nodes, list):
        raise refused(path, "a list of criteria", nodes)
    return tuple(_compile(node, f"{path}[{place}]", levels) for place, node in enumerate(nodes))


def _compile_comparison(node: Mapping[str, Any], path: str) -> Criterion:
    field, op, value = node["field"], node["op"], node.get("value")
    if not isinstance(field, str):
        raise refused(f"{path}.field", "a field's name", field)
    if not isinstance(op, str) or (op not in COMPARISONS and op not in EQUALITY):
        raise refused(f"{path}.op", f"one of {' '.join([*COMPARISONS, 'in', 'exists'])}", op)
    read, prepare, ordered = field_named(field, f"{path}.field")
    text = f"{field} {op}" if "value" not in node else f"{field} {op} {msgspec.json.encode(value).decode()}"
    if op == "exists":
        if "value" in node and not isinstance(value, bool):
            raise refused(f"{path}.value", "true or false", value)
        return Comparison(_exists(read, value is not False), read, text)
    if "value" not in node:
        raise InvalidMessageError(f"{path}.value: expected, but missing")
    if op == "in":
        if not isinstance(value, list):
            raise refused(f"{path}.value", "a list", value)
        wanted = [prepare(item, f"{path}.value[{place}]") for place, item in enumerate(value)]
        return Comparison(_compare_any(read, prepare, wanted), read, text)
    if op not in EQUALITY and not ordered:
        raise refused(f"{path}.op", f"= != in exists, as {field} is true or false", op)
    return Comparison(_compare(read, prepare, COMPARISONS[op], prepare(value, f"{path}.value")), read, text)


def _compare(read: Read, prepare: Prepare, compare: Callable[[Any, Any], bool], wanted: Any) -> Test:
    if wanted is None:
        return _never
    kind = wanted[0] if prepare is as_scalar else None

    def matches(device: ContactDevice) -> bool:
        value = prepare(read(device))
        return value is not None and (kind is None or value[0] == kind) and compare(value, wanted)

    return matches


def _compare_any(read: Read, prepare: Prepare, wanted: list[Any]) -> Test:
    among = frozenset(wanted)

    def matches(device: ContactDevice) -> bool:
        value = prepare(read(device))
        return value is not None and value in among

    return matches


def _exists(read: Read, expected: bool) -> Test:
    return lambda device: (read(device) is not None) is expected


def _all_of(tests: list[Test]) -> Test:
    if len(tests) == 1:
        return tests[0]

    # Not `all(…)`: its generator takes longer than most tests do.
    def matches(device: ContactDevice) -> bool:
        for test in tests:  # noqa: SIM110
            if not test(device):
                return False
        return True

    return matches


def _any_of(tests: list[Test]) -> Test:
    return lambda device: any(test(device) for test in tests)


def _not(test: Test) -> Test:
    return lambda device: not test(device)


def _never(_device: ContactDevice) -> bool:
    return False
