"""Access to a run of bringupd: its variables, its key-value store, its status, its logs and its result.

    import bringupd
    from bringupd import kv

    rank = bringupd.Rank.from_environment()
    kv.put("addr", b"10.0.0.1:7000")
    kv.fence("start", timeout=60)
    address = kv.get("addr", owner=0)

docs/python.md describes all of it. The package has no dependencies.
"""

from bringupd import kv
from bringupd._environment import (
    Endpoint,
    Node,
    Rank,
    Role,
    Run,
    planned_endpoints,
    ready_endpoints,
    role_key,
)
from bringupd._errors import (
    Error,
    NoPeerLinkError,
    NotInRunError,
    RequestError,
    TimeoutExpiredError,
    UnavailableError,
)
from bringupd._program import find_program
from bringupd._result import (
    Cause,
    DroppedNode,
    PhaseDuration,
    RequeueDecision,
    Result,
    WorldRank,
    read_result,
)
from bringupd._runs import RunSummary, list_runs, logs, stop, wait
from bringupd._status import (
    Dashboard,
    End,
    GateWait,
    InstanceStatus,
    NodeStatus,
    RoleStatus,
    Status,
    StepCount,
    read_status,
)
from bringupd._why import Activity, Child, Frame, Output, Process, SilentNode, Snapshot, Stack, Wait, ask_why

__all__ = [
    "Activity",
    "Cause",
    "Child",
    "Dashboard",
    "DroppedNode",
    "End",
    "Endpoint",
    "Error",
    "Frame",
    "GateWait",
    "InstanceStatus",
    "NoPeerLinkError",
    "Node",
    "NodeStatus",
    "NotInRunError",
    "Output",
    "PhaseDuration",
    "Process",
    "Rank",
    "RequestError",
    "RequeueDecision",
    "Result",
    "Role",
    "RoleStatus",
    "Run",
    "RunSummary",
    "SilentNode",
    "Snapshot",
    "Stack",
    "Status",
    "StepCount",
    "TimeoutExpiredError",
    "UnavailableError",
    "Wait",
    "WorldRank",
    "ask_why",
    "find_program",
    "kv",
    "list_runs",
    "logs",
    "planned_endpoints",
    "read_result",
    "read_status",
    "ready_endpoints",
    "role_key",
    "stop",
    "wait",
]
