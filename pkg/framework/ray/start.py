"""Runs Ray's own command, sys.argv[1], as soon as standard input tells how.

Most of the time of "ray start" is spent on imports, which need not wait for what
the node has yet to learn.
"""

import os
import sys

command = sys.argv[1]
if sys.path[0] == "":  # the working directory, where a "ray" of the user's may lie
    sys.path[0] = os.path.dirname(command)  # as for the command itself

import contextlib
import json
import runpy
import time

try:
    import ray.scripts.scripts
    from ray._private.node import Node
except ImportError:
    Node = None  # the command itself says what is missing

line = sys.stdin.buffer.readline()
if not line:
    sys.exit(0)  # it is not needed
order = json.loads(line)


def never(node, **settings):
    """Stands for the start of a process that nobody would use."""


def lighten(node_class):
    """Keeps what the node does not wait for from taking its processors meanwhile."""
    begin, put_off = node_class.__init__, []
    for name in order["skipped_methods"]:
        if hasattr(node_class, name):
            setattr(node_class, name, never)
    for name in order["deferred_methods"]:
        if start := getattr(node_class, name, None):
            setattr(node_class, name, lambda node, start=start: put_off.append(start))

    def __init__(node, *args, **settings):
        begin(node, *args, **settings)  # returns when the node is up
        for start in put_off:
            start(node)

    node_class.__init__ = __init__


def listeners(port):
    """Returns the sockets that listen on a port of this node, each with its user."""
    found = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open("/proc/self/net/" + table) as rows:
            for row in list(rows)[1:]:
                _, local, _, state, _, _, _, user, _, inode, *_ = row.split()
                if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                    found["socket:[" + inode + "]"] = user
    return found


def opened(pid):
    """Returns what a process of this user has open."""
    found = set()
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def guard(node_class):
    """Has ray start send its token to no other process that listens on the GCS's port."""
    start = getattr(node_class, "start_gcs_server", None)
    if start is None:
        return

    def start_gcs_server(node):
        start(node)
        port = node._ray_params.gcs_server_port
        process = node.all_processes["gcs_server"][0].process
        while True:
            code, found = process.poll(), listeners(port)
            own = opened(process.pid)
            if others := [user for inode, user in found.items() if inode not in own]:
                sys.exit(f"cannot start Ray's GCS: a process of user {others[0]} holds port {port}")
            if code is not None:
                sys.exit(f"cannot start Ray's GCS: it ended with {code} before it used port {port}")
            if found:
                return
            time.sleep(0.01)

    node_class.start_gcs_server = start_gcs_server


if Node is not None:
    lighten(Node)
    guard(Node)
sys.argv = [command, *order["args"]]
runpy.run_path(command, run_name="__main__")
