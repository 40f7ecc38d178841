"""What the processes of a run do: docs/why.md."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from bringupd._decode import decode, named, parse_object, raw_object
from bringupd._program import run_program
from bringupd._status import RoleStatus


@dataclass(frozen=True)
class Process:
    """The process of a child that says most about it."""

    pid: int
    thread: int = 0
    name: str = ""
    state: str = ""
    """A letter, as printed by ps."""
    call: str = ""
    """The system call in which it is."""
    on: str = ""
    """The file or the peer of that call."""
    wchan: str = ""
    cores: float = 0
    problem: str = ""


@dataclass(frozen=True)
class Output:
    """What a child has printed."""

    bytes: int = 0
    ago_seconds: float = named("ago_s", 0.0)
    """The time since the last output, if there is any."""
    error: str = ""
    """The error after which the child has printed nothing for long."""


@dataclass(frozen=True)
class Wait:
    """An operation of the key-value store for which a child waits."""

    kind: str
    """fence or get."""
    name: str = ""
    since_seconds: float = named("since_s", 0.0)
    missing: tuple[int, ...] = ()
    """The ranks for which it waits."""


@dataclass(frozen=True)
class Frame:
    """A frame of a stack."""

    function: str = named("func", "")
    file: str = ""
    line: int = 0
    library: str = ""


@dataclass(frozen=True)
class Stack:
    """The stack of a thread, the innermost frame first."""

    source: str = named("by", "")
    """py-spy, gdb or kernel."""
    frames: tuple[Frame, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Child:
    """A child of a daemon: a driver, a rank, a service."""

    child: str = ""
    """Its name; empty if the problem concerns the whole node."""
    node: int = 0
    host: str = ""
    pid: int = 0
    ended: str = ""
    """How it has ended; empty if it runs."""
    process: Optional[Process] = None
    processes: int = 0
    cores: float = 0
    output: Output = Output()
    step: Optional[float] = None
    """The newest step that it has reported."""
    waits: tuple[Wait, ...] = ()
    stack: Optional[Stack] = None
    problem: str = ""


@dataclass(frozen=True)
class Activity:
    """Children that do the same."""

    child: str = ""
    ranks: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    count: int = 0
    doing: str = ""
    subjects: tuple[str, ...] = named("of", ())
    facts: tuple[str, ...] = ()


@dataclass(frozen=True)
class SilentNode:
    """A node that did not answer in time."""

    node: int = 0
    host: str = ""
    why: str = ""


@dataclass(frozen=True)
class Snapshot:
    """What the processes of a run do at one moment."""

    run: str
    nodes: int = 0
    silent: tuple[SilentNode, ...] = ()
    groups: tuple[Activity, ...] = ()
    """The smallest first: usually those for which all others wait."""
    children: tuple[Child, ...] = named("seen", ())
    roles: tuple[RoleStatus, ...] = ()
    problems: tuple[str, ...] = ()
    raw: Mapping[str, Any] = raw_object()
    """The whole object that bringupd why --json has printed."""


def ask_why(run: Optional[str] = None, log_dir: Optional[str] = None, stacks: bool = False) -> Snapshot:
    """Asks the nodes of a running job what its processes do. The run is named as for bringupd why.

    With stacks, it also reads their stacks, which takes longer. Nodes that do not answer are in
    Snapshot.silent.
    """
    arguments = ["why", "--json"]
    if log_dir is not None:
        arguments.append(f"--log-dir={log_dir}")
    if stacks:
        arguments.append("--stacks")
    if run is not None:
        arguments.append(run)
    what = "the output of bringupd why"
    return decode(Snapshot, parse_object(run_program(arguments, expected=(0, 76)), what, 1), what)
