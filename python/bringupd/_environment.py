"""What the variables of a process say about its run: docs/environment.md and docs/ranks.md."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from bringupd._errors import Error, NotInRunError

Environment = Mapping[str, str]


@dataclass(frozen=True)
class Run:
    """The run that has started this process."""

    name: str
    directory: str
    attempt: int
    hosts: tuple[str, ...]
    """The nodes in order, without spares; empty for services, which do not get them."""
    hostfile: str
    """A file that lists the nodes with their slots; empty except for the driver."""
    head_address: str
    """The address of the head's service; empty if there is none, or for other processes."""

    @classmethod
    def from_environment(cls, environment: Optional[Environment] = None) -> "Run":
        """Returns the run that the variables describe."""
        env = _Variables(environment)
        hosts = env.text("HOSTS")
        return cls(
            name=env.required("RUN"),
            directory=env.required("RUN_DIR"),
            attempt=env.number("ATTEMPT", 0),
            hosts=tuple(hosts.split(",")) if hosts else (),
            hostfile=env.text("HOSTFILE"),
            head_address=env.text("HEAD_ADDRESS"),
        )


@dataclass(frozen=True)
class Node:
    """The node of this process."""

    host: str
    address: str
    """The address at which the other nodes reach this one."""
    interface: str
    index: Optional[int]
    """The place among the driver's nodes; None where spares may still change it, and on a spare."""
    count: Optional[int]
    """The number of the driver's nodes, likewise."""
    launch_index: int
    """The index among all launched nodes."""
    launch_count: int

    @classmethod
    def from_environment(cls, environment: Optional[Environment] = None) -> "Node":
        """Returns the node that the variables describe."""
        env = _Variables(environment)
        return cls(
            host=env.required("NODE_HOST"),
            address=env.text("NODE_ADDRESS"),
            interface=env.text("NODE_INTERFACE"),
            index=env.optional_number("NODE_RANK"),
            count=env.optional_number("NODE_COUNT"),
            launch_index=env.required_number("LAUNCH_RANK"),
            launch_count=env.required_number("LAUNCH_COUNT"),
        )


@dataclass(frozen=True)
class Rank:
    """The place of this process in its world of ranks."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    master_address: str
    """The address of rank 0's node; empty if it is not known."""
    master_port: Optional[int]
    """A port that is reserved for rank 0."""

    @classmethod
    def from_environment(cls, environment: Optional[Environment] = None) -> "Rank":
        """Returns the rank that the variables describe."""
        env = _Variables(environment)
        return cls(
            rank=env.required_number("RANK"),
            size=env.required_number("RANKS"),
            local_rank=env.required_number("LOCAL_RANK"),
            local_size=env.required_number("LOCAL_RANKS"),
            master_address=env.values.get("MASTER_ADDR", ""),
            master_port=env.optional_number("MASTER_PORT", prefix=""),
        )


@dataclass(frozen=True)
class Role:
    """The place of this process in its role, in a run with roles."""

    name: str
    index: int
    """The number of its instance."""
    count: int
    """The number of instances of the role."""
    instance_rank: int
    """The place of this process within its instance."""
    instance_size: int
    instance_address: str
    """The address of the first process of the instance."""
    instance_port: Optional[int]
    """The port of that process, the first one if it has several."""
    instance_ports: Mapping[str, int]
    """The ports of that process that have a name, by that name in lower case."""
    generation: int
    """The number of restarts of the instance."""
    port: Optional[int]
    """Its own port, the first one if it has several."""
    ports: Mapping[str, int]
    """Its ports that have a name, by that name in lower case."""

    @classmethod
    def from_environment(cls, environment: Optional[Environment] = None) -> "Role":
        """Returns the role that the variables describe."""
        env = _Variables(environment)
        return cls(
            name=env.required("ROLE"),
            index=env.required_number("ROLE_INDEX"),
            count=env.required_number("ROLE_COUNT"),
            instance_rank=env.number("INSTANCE_RANK", 0),
            instance_size=env.number("INSTANCE_SIZE", 1),
            instance_address=env.text("INSTANCE_ADDRESS"),
            instance_port=env.optional_number("INSTANCE_PORT"),
            instance_ports=env.numbers("INSTANCE_PORT_"),
            generation=env.number("GENERATION", 0),
            port=env.optional_number("PORT"),
            ports=env.numbers("PORT_"),
        )


@dataclass(frozen=True)
class Endpoint:
    """The address of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Returns the endpoint of the form HOST:PORT. A host with colons is in square brackets."""
        match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]+)):([0-9]{1,5})", text)
        if not match:
            raise Error(f"cannot read the endpoint {text!r}: want HOST:PORT")
        return cls(host=match[1] or match[2], port=int(match[3]))


def planned_endpoints(role: str, environment: Optional[Environment] = None) -> tuple[Endpoint, ...]:
    """Returns the endpoints of a role by index, as planned: whether they are up or not."""
    return _parse_endpoints(_Variables(environment).required(f"ROLE_{_variable_part(role)}_ENDPOINTS"))


def ready_endpoints(role: str, environment: Optional[Environment] = None) -> tuple[Endpoint, ...]:
    """Returns the endpoints of a role that are ready now. Call it again to see changes."""
    path = _Variables(environment).required(f"ENDPOINTS_FILE_{_variable_part(role)}")
    try:
        with open(path, encoding="utf-8") as file:
            return _parse_endpoints(file.read())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise Error(f"cannot read the endpoints of the role {role}: {error}") from error


def role_key(role: str, environment: Optional[Environment] = None) -> str:
    """Returns the secret that the servers of a role and their clients share."""
    return _Variables(environment).required(f"ROLE_{_variable_part(role)}_KEY")


def _parse_endpoints(text: str) -> tuple[Endpoint, ...]:
    return tuple(Endpoint.parse(item) for item in re.split(r"[\s,]+", text) if item)


def _variable_part(role: str) -> str:
    """Returns a role's name as it is in variables."""
    return role.upper().replace("-", "_")


# How to start a process that has a variable.
_STARTED_AS = {"RANK": ": start it as a rank, bringupd … --ranks-per-node=N -- python program.py"}


class _Variables:
    """The variables of a process, whose values are checked. Names are without BRINGUPD_."""

    def __init__(self, environment: Optional[Environment]) -> None:
        self.values: Environment = os.environ if environment is None else environment

    def text(self, name: str) -> str:
        return self.values.get(f"BRINGUPD_{name}", "")

    def required(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise NotInRunError(
                f"cannot find BRINGUPD_{name}: bringupd has not started this process, or does not set it here"
                f"{_STARTED_AS.get(name, '')}"
            )
        return value

    def optional_number(self, name: str, prefix: str = "BRINGUPD_") -> Optional[int]:
        value = self.values.get(prefix + name, "")
        if not value:
            return None
        if not re.fullmatch("[0-9]+", value):
            raise Error(f"cannot use {prefix}{name}={value}: want a number")
        return int(value)

    def number(self, name: str, default: int) -> int:
        value = self.optional_number(name)
        return default if value is None else value

    def required_number(self, name: str) -> int:
        self.required(name)
        return self.number(name, 0)

    def numbers(self, prefix: str) -> dict[str, int]:
        """Returns the numbers of all variables with the prefix, by the rest of their names."""
        names = (name[len("BRINGUPD_") :] for name in self.values if name.startswith(f"BRINGUPD_{prefix}"))
        return {name[len(prefix) :].lower(): self.required_number(name) for name in sorted(names)}
