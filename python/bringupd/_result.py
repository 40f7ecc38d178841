"""The result of a run: docs/run-directory.md describes the fields."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Optional

from bringupd._decode import decode, named, parse_object, raw_object
from bringupd._environment import Run
from bringupd._errors import Error


@dataclass(frozen=True)
class WorldRank:
    """A rank that has failed."""

    number: int
    gpus: str = ""
    symptom: str = ""
    """Why the failure looks like the consequence of another one."""


@dataclass(frozen=True)
class Cause:
    """A failure, as seen by the node that saw it first."""

    kind: str
    phase: str = ""
    what: str = ""
    node_index: int = named("rank", 0)
    host: str = ""
    at: Optional[datetime] = None
    child: str = ""
    code: int = 0
    signal: str = ""
    exit: str = ""
    error: str = ""
    """The line of its output that says why it has failed."""
    log: str = ""
    lines: tuple[str, ...] = ()
    world_rank: Optional[WorldRank] = None
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class DroppedNode:
    """A node that was dropped because of a fault."""

    node_index: int = named("rank", 0)
    host: str = ""
    why: str = ""


@dataclass(frozen=True)
class PhaseDuration:
    """The duration of a phase on the head."""

    phase: str
    took: timedelta = named("took_ns", timedelta(0))


@dataclass(frozen=True)
class RequeueDecision:
    """Whether the job was to be requeued."""

    wanted: bool
    why: str = ""


@dataclass(frozen=True)
class Result:
    """How an attempt has ended."""

    run: str
    code: int
    """The job's exit code."""
    word: str
    """The same as a word of the table of exit codes."""
    why: str = ""
    nodes: int = named("size", 0)
    at: Optional[datetime] = None
    cause: Optional[Cause] = None
    at_phase: str = ""
    after_gate: timedelta = named("after_gate_ns", timedelta(0))
    error: str = ""
    """That of the cause or of the driver."""
    consequences: tuple[Cause, ...] = ()
    advice: tuple[str, ...] = ()
    bad_nodes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    team: tuple[int, ...] = ()
    """The driver's nodes in order, if there were spares."""
    dropped: tuple[DroppedNode, ...] = ()
    took: timedelta = named("took_ns", timedelta(0))
    to_gate: timedelta = named("to_gate_ns", timedelta(0))
    program: str = ""
    """The version of bringupd."""
    phases: tuple[PhaseDuration, ...] = ()
    requeue: Optional[RequeueDecision] = None
    next_attempt: int = 0
    """The number of the attempt that follows within this launch; 0 if none does."""
    raw: Mapping[str, Any] = raw_object()
    """The whole content of result.json."""


def read_result(directory: Optional[str] = None) -> Optional[Result]:
    """Returns the result of the run in a run directory, or None if the run is not over.

    Without a directory it is the run of this process. If next_attempt is not 0, another attempt
    follows.
    """
    if directory is None:
        directory = Run.from_environment().directory
    path = os.path.join(directory, "result.json")
    try:
        # List the names first: a failed look-up could hide the file from this machine for a while.
        if "result.json" not in os.listdir(directory):
            return None
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise Error(f"cannot read the result of the run: {error}") from error
    return decode(Result, parse_object(text, path, 1), path)
