"""The program bringupd, which does the work of this package."""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Collection, Sequence

from bringupd._errors import Error, NoPeerLinkError, RequestError, TimeoutExpiredError, UnavailableError

# The exceptions for the program's exit codes.
_ERRORS: dict[int, type[Error]] = {
    64: RequestError,
    65: NoPeerLinkError,
    76: UnavailableError,
    124: TimeoutExpiredError,
}


def find_program() -> str:
    """Returns the path of the program: that of this package, or otherwise that of PATH."""
    for folder in _script_folders():
        path = os.path.join(folder, "bringupd")
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    found = shutil.which("bringupd")
    if found is None:
        raise Error(
            "cannot find the program bringupd: it is neither installed with this Python package nor in PATH"
        )
    return found


def _script_folders() -> list[str]:
    """Returns the folders in which pip may have installed the program with this package."""
    package = os.path.dirname(os.path.abspath(__file__))
    folders = []
    # Accept a folder only if this package is where an installation of the same kind has it.
    for scheme in sysconfig.get_scheme_names():
        if os.name in scheme or scheme == "venv":
            paths = sysconfig.get_paths(scheme)
            if os.path.dirname(package) in (paths["purelib"], paths["platlib"]):
                folders.append(paths["scripts"])
    folders.append(os.path.join(os.path.dirname(package), "bin"))  # pip install --target
    return folders


def run_program(arguments: Sequence[str], expected: Collection[int] = (0,), stdin: bytes = b"") -> bytes:
    """Runs the program and returns its standard output.

    An exit code that is not expected raises an exception with what the program has printed.
    """
    command = [find_program(), *arguments]
    try:
        ended = subprocess.run(command, input=stdin, capture_output=True, check=False)
    except OSError as error:
        raise Error(f"cannot run {command[0]}: {error}") from error
    # A program that crashes may also have an expected code, but it prints no result.
    if ended.returncode not in expected or not ended.stdout:
        check_ended(arguments, ended.returncode, ended.stderr)
    return ended.stdout


def check_ended(arguments: Sequence[str], code: int, stderr: bytes) -> None:
    """Raises an exception with what the program has printed unless it has ended with 0."""
    if code != 0:
        raise _ERRORS.get(code, Error)(_message(arguments, code, stderr))


def _message(arguments: Sequence[str], code: int, stderr: bytes) -> str:
    """Returns what the program has printed, without its name and the hint at its help."""
    lines = stderr.decode(errors="replace").strip().splitlines()
    lines = [line for line in lines if not line.startswith("See: ")]
    if not lines:
        return f"cannot run bringupd {arguments[0]}: it has ended with code {code} and printed nothing"
    prefix = "bringupd: "
    return "\n".join(line[len(prefix) :] if line.startswith(prefix) else line for line in lines)
