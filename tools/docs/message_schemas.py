"""JSON Schemas of the messages, from the Structs that decode and encode them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import fields

REFERENCE: Final = "#/$defs/{name}"
_WORDS: Final = {"string": "text", "integer": "whole number", "array": "list"}


def schema_of(struct: type[Struct], **replaced: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Struct's own schema and those it refers to. `replaced`: what a field that is kept as bytes really holds."""
    (top,), components = msgspec.json.schema_components([_readable(struct, replaced)], ref_template=REFERENCE)
    name = top["$ref"].removeprefix(REFERENCE.format(name=""))
    own = components.pop(name)
    own.setdefault("description", "")
    return {**own, "title": struct.__name__}, components


def _readable(struct: type[Struct], replaced: Mapping[str, Any]) -> type[Struct]:
    """The same Struct with `replaced` types. Bytes that are passed on as they are may be any JSON otherwise."""
    declared: list[tuple[str, Any, Any]] = []
    required: list[tuple[str, Any, Any]] = []
    for one in fields(struct):
        kind = replaced.get(one.name, Any if one.type is Raw else one.type)
        default = one.default
        if isinstance(default, Raw):
            default = msgspec.UNSET
            kind |= msgspec.UnsetType
        if one.required:
            required.append((one.name, kind, msgspec.field(name=one.encode_name)))
        elif default is msgspec.NODEFAULT:
            declared.append((one.name, kind, msgspec.field(name=one.encode_name, default_factory=one.default_factory)))
        else:
            declared.append((one.name, kind, msgspec.field(name=one.encode_name, default=default)))
    copy = msgspec.defstruct(struct.__name__, [*required, *declared])
    copy.__doc__ = struct.__doc__
    return copy


def rows(schema: Mapping[str, Any], components: Mapping[str, Any]) -> list[Sequence[str]]:
    """(field, type, required) of an object, those of the objects in it below, under their path."""
    found: list[Sequence[str]] = []
    needed = set(schema.get("required", ()))
    for name, kind in schema.get("properties", {}).items():
        found.append((name, type_in_words(kind, components), "yes" if name in needed else ""))
        inner, suffix = _object_in(kind, components)
        if inner is not None:
            found += [(f"{name}{suffix}.{field}", words, must) for field, words, must in rows(inner, components)]
    return found


def type_in_words(kind: Mapping[str, Any], components: Mapping[str, Any]) -> str:
    """`text of 1 to 512 characters` and the like."""
    if "$ref" in kind:
        return type_in_words(_resolved(kind, components), components)
    if "anyOf" in kind:
        return " or ".join(dict.fromkeys(type_in_words(one, components) for one in kind["anyOf"]))
    if "enum" in kind:
        return ", ".join(f"`{value}`" for value in kind["enum"])
    return _plain_type(kind, components)


def _plain_type(kind: Mapping[str, Any], components: Mapping[str, Any]) -> str:
    name = kind.get("type", "anything")
    words = str(_WORDS.get(name, name))
    if name == "string":
        return words + _limits(kind, "minLength", "maxLength", " characters")
    if name in ("integer", "number"):
        return words + _limits(kind, "minimum", "maximum", "")
    inner = kind.get("items") if name == "array" else kind.get("additionalProperties")
    return f"{words} of {type_in_words(inner, components)}" if isinstance(inner, dict) else words


def _limits(kind: Mapping[str, Any], least_key: str, most_key: str, unit: str) -> str:
    least, most = kind.get(least_key), kind.get(most_key)
    if least is not None and least == most:
        return f" of {least}{unit}"
    if "exclusiveMinimum" in kind:
        return f" > {kind['exclusiveMinimum']}"
    if least is None and most is None:
        return ""
    if least is None or most is None:
        return f" of at {'least' if most is None else 'most'} {most if least is None else least}{unit}"
    return f" of {least} to {most}{unit}"


def _resolved(kind: Mapping[str, Any], components: Mapping[str, Any]) -> Mapping[str, Any]:
    resolved: Mapping[str, Any] = components[kind["$ref"].removeprefix(REFERENCE.format(name=""))]
    return resolved


def _object_in(kind: Mapping[str, Any], components: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str]:
    """The object that a field holds, in a list, under any key or as it is; and how its path goes on."""
    if "$ref" in kind:
        target = _resolved(kind, components)
        return (target, "") if "properties" in target else (None, "")
    for one in kind.get("anyOf", ()):
        inner, suffix = _object_in(one, components)
        if inner is not None:
            return inner, suffix
    if kind.get("type") == "array":
        inner, suffix = _object_in(kind.get("items", {}), components)
        return inner, f"[]{suffix}"
    if isinstance(kind.get("additionalProperties"), dict):
        inner, suffix = _object_in(kind["additionalProperties"], components)
        return inner, f".*{suffix}"
    return None, ""
