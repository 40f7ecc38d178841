import math
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from functools import partial
from unittest import mock

import bringupd
from bringupd._program import run_program


class TestProgram(unittest.TestCase):
    def test_found(self) -> None:
        program = bringupd.find_program()
        text = subprocess.run([program, "version"], stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(run_program(["version"]), text)
        module = subprocess.run(
            [sys.executable, "-m", "bringupd", "version"], stdout=subprocess.PIPE, check=True
        )
        self.assertEqual(module.stdout, text)

    def test_usage_error(self) -> None:
        with self.assertRaises(bringupd.RequestError) as caught:
            run_program(["kv", "get"])
        self.assertTrue(str(caught.exception).startswith("cannot use these arguments: "), caught.exception)
        self.assertNotIn("See: ", str(caught.exception))

    def test_no_such_run(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(bringupd.RequestError):
            bringupd.read_status("53", log_dir=folder)

    def test_missing(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"PATH": folder}):
            with mock.patch("bringupd._program._script_folders", return_value=[folder]):
                with self.assertRaises(bringupd.Error) as caught:
                    bringupd.find_program()
                self.assertTrue(str(caught.exception).startswith("cannot find the program bringupd: "))

    def assert_runs(self, call: Callable[[], object], arguments: str) -> None:
        """Checks with which arguments a call runs the program; none if it does not."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bringupd")
            with open(path, "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\necho "$@" >{folder}/arguments\n')
            os.chmod(path, 0o755)
            with mock.patch("bringupd._program._script_folders", return_value=[folder]):
                if not arguments:
                    self.assertRaises(ValueError, call)
                    self.assertEqual(os.listdir(folder), ["bringupd"])
                    return
                call()
            with open(os.path.join(folder, "arguments"), encoding="utf-8") as file:
                self.assertEqual(file.read(), arguments + "\n")

    def test_progress(self) -> None:
        self.assert_runs(lambda: bringupd.kv.progress(1200), "kv progress 1200")

    def test_values(self) -> None:
        self.assert_runs(lambda: bringupd.kv.put("a", b"x"), "kv put a")
        for value in (3, [1, 2], {"b": 1}):
            with self.subTest(value), self.assertRaisesRegex(TypeError, "bytes-like"):
                bringupd.kv.put("a", value)  # type: ignore[arg-type]

    def test_timeouts(self) -> None:
        """The program takes a timeout of 0 for none, which only None must mean."""
        for timeout, flag in (
            (None, "--timeout=0"),
            (1.5, "--timeout=1.500s"),
            (300, "--timeout=300.000s"),
            (1e-9, "--timeout=0.001s"),
            (0, ""),
            (0.0, ""),
            (-1, ""),
            (math.nan, ""),
        ):
            get = partial(bringupd.kv.get, "a", timeout=timeout)
            fence = partial(bringupd.kv.fence, "b", timeout=timeout)
            with self.subTest(timeout):
                self.assert_runs(get, flag and f"kv get a {flag}")
                self.assert_runs(fence, flag and f"kv fence {flag} b")
        self.assert_runs(lambda: bringupd.kv.get("a"), "kv get a --timeout=300.000s")
        self.assert_runs(lambda: bringupd.kv.fence(), "kv fence --timeout=300.000s")

    def test_exit_codes(self) -> None:
        for code, output, wanted in (
            (65, "", bringupd.NoPeerLinkError),
            (76, "", bringupd.UnavailableError),
            (124, "", bringupd.TimeoutExpiredError),
            (124, "", TimeoutError),
            (70, "", bringupd.Error),
            (2, "", bringupd.Error),
            (2, "{}", None),
        ):
            with self.subTest(f"{code} {output}"), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "bringupd")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\necho 'bringupd: cannot' >&2\nprintf '{output}'\nexit {code}\n")
                os.chmod(path, 0o755)
                with mock.patch("bringupd._program._script_folders", return_value=[folder]):
                    if wanted is None:
                        self.assertEqual(run_program(["x"], expected=(0, 2)), output.encode())
                        continue
                    with self.assertRaises(wanted) as caught:
                        run_program(["x"], expected=(0, 2))
                    self.assertEqual(str(caught.exception), "cannot")
