"""The runs of a log directory: docs/status.md describes them."""

import subprocess
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Optional, Union

from bringupd._decode import decode, named, parse_object
from bringupd._program import check_ended, find_program, run_program
from bringupd._status import Status, read_status


@dataclass(frozen=True)
class RunSummary:
    """A run of a log directory."""

    run: str
    """Its name."""
    state: str = ""
    """bringing-up, up, ending, finished, failed or unknown."""
    silent: bool = False
    """Whether the daemons may be gone."""
    nodes: int = 0
    started_at: Optional[datetime] = None
    ended_at: Optional[datetime] = None
    duration: timedelta = named("duration_ns", timedelta(0))
    """So far, or in all."""
    code: Optional[int] = None
    """The job's exit code; None while the run continues."""
    word: str = ""
    """The same as a word of the table of exit codes."""
    error: str = ""
    """The line of a log that says why it has failed."""
    restarts: int = 0
    """How often the job had been requeued or restarted before."""
    goodput: Optional[float] = None
    driver: str = ""
    roles: str = ""
    bad_nodes: str = ""
    problem: str = ""
    """Why only the result of the run is known."""


@dataclass(frozen=True)
class _RunList:
    runs: tuple[RunSummary, ...] = ()


def list_runs(log_dir: Optional[str] = None) -> tuple[RunSummary, ...]:
    """Returns the runs of a log directory, the newest last.

    Without a directory it is that of the run of this process, or else the default.
    """
    what = "the output of bringupd list"
    output = run_program(["list", "--json", *_log_dir_flag(log_dir)])
    return decode(_RunList, parse_object(output, what, 1), what).runs


def wait(
    run: Optional[str] = None,
    log_dir: Optional[str] = None,
    until: Literal["up", "end"] = "end",
    timeout: Optional[float] = None,
) -> Status:
    """Waits until a run is up or has ended, and returns its status then.

    A run that does not exist yet is waited for, and so is the next attempt. The wait also ends if
    the run cannot be up any more, or if its daemons may be gone: Status.silent. The timeout is in
    seconds; it raises TimeoutExpiredError.
    """
    arguments = ["wait", "--json", f"--for={until}", *_log_dir_flag(log_dir)]
    if timeout is not None:
        if not timeout > 0:
            raise ValueError(f"cannot wait for {timeout} seconds: give a positive number, or None for no timeout")
        arguments.append(f"--timeout={max(timeout, 0.001):.3f}s")
    if run is not None:
        arguments.append(run)
    what = "the output of bringupd wait"
    # The code is that of the run if a status was printed.
    return decode(Status, parse_object(run_program(arguments, expected=range(256)), what, 1), what)


def stop(run: Optional[str] = None, log_dir: Optional[str] = None) -> None:
    """Asks a run to end in an orderly way, and does not wait for its end.

    It does nothing if the run has ended. Outside a job, give a run or a log directory.
    """
    run_program(["stop", *_log_dir_flag(log_dir), *([] if run is None else [run])])


def logs(
    run: Optional[str] = None,
    of: Union[str, int, None] = None,
    log_dir: Optional[str] = None,
    follow: bool = False,
) -> Generator[str, None, None]:
    """Yields the lines of logs of a run, without their ends.

    of is driver, head, ranks, rank-N, a role, or the host or the index of a node. None means the
    driver or, if there is none, all ranks, the primary roles or the head's service. With follow,
    further lines are waited for until the run ends.
    """
    arguments = ["logs", "--raw", *(["--follow"] if follow else [])]
    if of is not None:
        arguments.append(str(of))
    # The path cannot be taken for what of selects.
    arguments.append(read_status(run, log_dir).path)
    with tempfile.TemporaryFile() as errors, subprocess.Popen(
        [find_program(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
    ) as program:
        try:
            assert program.stdout is not None
            for line in program.stdout:
                yield line.decode(errors="replace").rstrip("\n")
        except BaseException:  # also if the caller wants no more lines
            program.terminate()
            raise
        code = program.wait()
        errors.seek(0)
        check_ended(arguments, code, errors.read())


def _log_dir_flag(log_dir: Optional[str]) -> list[str]:
    return [] if log_dir is None else [f"--log-dir={log_dir}"]
