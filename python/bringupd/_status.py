"""The status of a run: docs/status.md describes the fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Optional

from bringupd._decode import decode, named, parse_object, raw_object
from bringupd._program import run_program


@dataclass(frozen=True)
class GateWait:
    """What a run waits for before its gate opens."""

    step: str
    what: str
    node_indices: tuple[int, ...] = named("ranks", ())
    nodes: str = ""


@dataclass(frozen=True)
class StepCount:
    """The number of nodes in a step."""

    step: str
    nodes: int


@dataclass(frozen=True)
class NodeStatus:
    """The status of a node."""

    node_index: int = named("rank", 0)
    host: str = ""
    step: str = ""
    mark: str = ""
    """failed, lost, left, waits, befallen, dropped or ok."""
    duration: timedelta = named("for_ns", timedelta(0))
    """How long it waits."""
    what: str = ""


@dataclass(frozen=True)
class InstanceStatus:
    """An instance of a role that needs attention."""

    instance: str
    """Such as judge.1."""
    state: str = ""
    nodes: str = ""
    what: str = ""


@dataclass(frozen=True)
class RoleStatus:
    """The state of a role. Its numbers are those of instances."""

    name: str = named("role", "")
    primary: bool = False
    instances: int = 0
    need: int = 0
    ready: int = 0
    starting: int = 0
    waiting: int = 0
    unready: int = 0
    restarting: int = 0
    done: int = 0
    lost: int = 0
    stopped: int = 0
    restarts: int = 0
    waits_for: tuple[InstanceStatus, ...] = ()
    waits_more: int = 0
    last_exit: str = ""


@dataclass(frozen=True)
class Dashboard:
    """The dashboard of Ray or Dask."""

    url: str
    host: str


@dataclass(frozen=True)
class End:
    """How a run has ended, or is about to end."""

    code: int
    """The job's exit code."""
    word: str = ""
    """The same as a word of the table of exit codes."""
    why: str = ""
    took: timedelta = named("took_ns", timedelta(0))
    node_index: Optional[int] = named("rank", None)
    """The node that has seen the first cause."""
    host: str = ""
    lost: tuple[int, ...] = ()
    lost_nodes: str = ""
    phase: str = ""
    cause: str = ""
    error: str = ""
    """The line of its log that says why it has failed."""
    log: str = ""
    lines: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    consequences: int = 0
    bad_nodes: str = ""


@dataclass(frozen=True)
class Status:
    """The state of a run at one moment."""

    run: str
    path: str
    state: str
    """bringing-up, up, ending, finished, failed or unknown."""
    at: Optional[datetime] = None
    phase: str = ""
    next_attempt: int = 0
    """The number of the attempt that follows this run; 0: none."""
    nodes: int = 0
    need: int = 0
    ready: int = 0
    elapsed: timedelta = named("elapsed_ns", timedelta(0))
    to_gate: timedelta = named("to_gate_ns", timedelta(0))
    ended_at: Optional[datetime] = None
    driver: str = ""
    command: str = ""
    flags: tuple[str, ...] = ()
    job_name: str = ""
    driver_code: Optional[int] = None
    dashboard: Optional[Dashboard] = None
    world: bool = False
    roles: tuple[RoleStatus, ...] = ()
    waits_for: tuple[GateWait, ...] = ()
    steps: tuple[StepCount, ...] = ()
    abnormal: tuple[NodeStatus, ...] = ()
    abnormal_more: int = 0
    all: tuple[NodeStatus, ...] = ()
    """Every node, if they were requested."""
    next: str = ""
    deadline: Optional[datetime] = None
    end: Optional[End] = None
    """None while the run continues."""
    last_sign: Optional[datetime] = None
    unchanged: timedelta = named("unchanged_ns", timedelta(0))
    silent: bool = False
    """Whether the daemons may be gone."""
    silent_after: timedelta = named("silent_after_ns", timedelta(0))
    problems: tuple[str, ...] = ()
    raw: Mapping[str, Any] = raw_object()
    """The whole object that bringupd status --json has printed."""


def read_status(run: Optional[str] = None, log_dir: Optional[str] = None, all_nodes: bool = False) -> Status:
    """Returns the status of a run, named as for bringupd status: its directory, name or job.

    Without a name it is the run of this process, or else the newest one in the log directory.
    """
    arguments = ["status", "--json"]
    if log_dir is not None:
        arguments.append(f"--log-dir={log_dir}")
    if all_nodes:
        arguments.append("--verbose")
    if run is not None:
        arguments.append(run)
    what = "the output of bringupd status"
    return decode(Status, parse_object(run_program(arguments, expected=(0, 1, 2)), what, 1), what)
