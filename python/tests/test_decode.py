import unittest
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Optional

from bringupd._decode import decode, named, parse_object, raw_object
from bringupd._errors import Error


@dataclass(frozen=True)
class Inner:
    name: str


@dataclass(frozen=True)
class Outer:
    code: int
    took: timedelta = named("took_ns", timedelta(0))
    at: Optional[datetime] = None
    inner: Optional[Inner] = None
    inners: tuple[Inner, ...] = ()
    share: float = 0
    raw: Mapping[str, Any] = raw_object()


class TestDecode(unittest.TestCase):
    def test_values(self) -> None:
        value = {
            "code": 1,
            "took_ns": 1500000000,
            "at": "2026-11-27T05:58:27.129570065Z",
            "inner": {"name": "a", "new": 1},
            "inners": [{"name": "b"}, {"name": "c"}],
            "share": 2,
            "unknown": [],
        }
        outer = decode(Outer, value, "it")
        at = datetime(2026, 11, 27, 5, 58, 27, 129570, timezone.utc)
        self.assertEqual(
            outer, Outer(1, timedelta(seconds=1.5), at, Inner("a"), (Inner("b"), Inner("c")), 2.0)
        )
        self.assertEqual(outer.raw, value)

    def test_defaults(self) -> None:
        self.assertEqual(decode(Outer, {"code": 1, "inner": None}, "it"), Outer(1))

    def test_time_zones(self) -> None:
        got = decode(Outer, {"code": 1, "at": "2026-11-27T05:58:27-01:30"}, "it")
        self.assertEqual(got.at, datetime(2026, 11, 27, 7, 28, 27, tzinfo=timezone.utc))

    def test_unknown_time(self) -> None:
        self.assertEqual(decode(Outer, {"code": 1, "at": "0001-01-01T00:00:00Z"}, "it"), Outer(1))

    def test_wrong_values(self) -> None:
        for value, wanted in (
            ({}, "cannot read it: "),
            ({"code": "1"}, "cannot read it: code: got '1'"),
            ({"code": True}, "cannot read it: code: "),
            ({"code": 1, "inners": [{"name": 1}]}, "cannot read it: inners: name: "),
            ({"code": 1, "at": "yesterday"}, "cannot read it: at: "),
            ({"code": 1, "at": "2026-13-27T05:58:27Z"}, "cannot read it: at: "),
        ):
            with self.subTest(wanted), self.assertRaises(Error) as caught:
                decode(Outer, value, "it")
            self.assertTrue(str(caught.exception).startswith(wanted), caught.exception)

    def test_objects(self) -> None:
        self.assertEqual(parse_object(b'{"v": 1}', "it", 1), {"v": 1})
        for text, wanted in (
            (b"", "cannot read it: "),
            (b"[]", "want an object"),
            (b'{"v": 2}', "it has version 2"),
        ):
            with self.subTest(text), self.assertRaises(Error) as caught:
                parse_object(text, "it", 1)
            self.assertIn(wanted, str(caught.exception))
