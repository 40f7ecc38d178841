"""Reading of JSON objects as dataclasses."""

import json
import re
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Optional, TypeVar, Union, get_args, get_origin, get_type_hints

from bringupd._errors import Error

T = TypeVar("T")


def named(key: str, default: Any) -> Any:
    """Returns a field of a dataclass whose key in JSON differs from its name."""
    return field(default=default, metadata={"key": key})


def raw_object() -> Any:
    """Returns the field of a dataclass that gets the whole object, for keys that have no field."""
    return field(default_factory=dict, repr=False, compare=False, metadata={"key": ""})


def parse_object(text: bytes, what: str, version: int) -> dict[str, Any]:
    """Parses a JSON object whose version, in the key v, must not be newer than the given one."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Error(f"cannot read {what}: {error}") from error
    if not isinstance(value, dict):
        raise Error(f"cannot read {what}: want an object, got {type(value).__name__}")
    if value.get("v", version) != version:
        raise Error(f"cannot read {what}: it has version {value['v']}, and this package reads {version}")
    return value


def decode(cls: type[T], value: Mapping[str, Any], what: str) -> T:
    """Returns the object as an instance of a dataclass.

    Unknown keys are ignored, and fields whose keys are missing keep their defaults.
    """
    hints = get_type_hints(cls)
    given: dict[str, Any] = {}
    for each in fields(cls):  # type: ignore[arg-type]
        key = each.metadata.get("key", each.name)
        if key == "":
            given[each.name] = value
        elif value.get(key) is not None:
            given[each.name] = _convert(hints[each.name], value[key], f"{what}: {key}")
    try:
        return cls(**given)
    except TypeError as error:  # a field without a default is missing
        raise Error(f"cannot read {what}: {error}") from error


def _convert(hint: Any, value: Any, what: str) -> Any:
    """Returns the JSON value as an instance of the type."""
    if get_origin(hint) is Union:  # Optional
        return _convert(get_args(hint)[0], value, what)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_convert(get_args(hint)[0], each, what) for each in value)
    if is_dataclass(hint) and isinstance(value, dict):
        return decode(hint, value, what)  # type: ignore[arg-type]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is timedelta and number:
        return timedelta(microseconds=value / 1000)
    if hint is datetime and isinstance(value, str):
        return None if value.startswith("0001-01-01T") else _parse_time(value, what)  # unknown
    if hint is float and number:
        return float(value)
    if hint in (bool, int, str) and type(value) is hint:
        return value
    raise Error(f"cannot read {what}: got {str(value)[:100]!r}")


def _parse_time(text: str, what: str) -> datetime:
    """Parses a time of RFC 3339, whose nanoseconds a datetime cannot represent."""
    match = re.fullmatch(r"(\d+-\d+-\d+T\d+:\d+:\d+)(\.\d+)?(?:Z|([+-])(\d\d):(\d\d))", text)
    if not match:
        raise Error(f"cannot read {what}: got {text!r}, want a time of RFC 3339")
    offset = timedelta(hours=int(match[4] or 0), minutes=int(match[5] or 0))
    zone = timezone(-offset if match[3] == "-" else offset)
    try:
        whole = datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=zone)
    except ValueError as error:
        raise Error(f"cannot read {what}: {error}") from error
    return whole + timedelta(seconds=float(match[2] or 0))


def known_keys(cls: Any) -> dict[str, Optional[Any]]:
    """Returns the keys of a dataclass, with the dataclass of those that have one.

    Tests compare them with real output.
    """
    hints = get_type_hints(cls)
    keys: dict[str, Optional[Any]] = {}
    for each in fields(cls):
        hint = hints[each.name]
        while get_origin(hint) in (Union, tuple):
            hint = get_args(hint)[0]
        keys[each.metadata.get("key", each.name)] = hint if is_dataclass(hint) else None
    return keys
