import os
import subprocess
import sys
import tempfile
import unittest
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

    def test_progress(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bringupd")
            with open(path, "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\necho "$@" >{folder}/arguments\n')
            os.chmod(path, 0o755)
            with mock.patch("bringupd._program._script_folders", return_value=[folder]):
                bringupd.kv.progress(1200)
            with open(os.path.join(folder, "arguments"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "kv progress 1200\n")

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
