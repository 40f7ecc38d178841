"""Runs Ray's own command, sys.argv[1], as soon as standard input tells how.

Most of the time of "ray start" is spent on imports, which need not wait for what
the node has yet to learn.
"""

import os
import sys

command = sys.argv[1]
if sys.path[0] == "":  # the working directory, where a "ray" of the user's may lie
    sys.path[0] = os.path.dirname(command)  # as for the command itself

import json
import runpy

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
    for name in order["never"]:
        if hasattr(node_class, name):
            setattr(node_class, name, never)
    for name in order["later"]:
        if start := getattr(node_class, name, None):
            setattr(node_class, name, lambda node, start=start: put_off.append(start))

    def __init__(node, *args, **settings):
        begin(node, *args, **settings)  # returns when the node is up
        for start in put_off:
            start(node)

    node_class.__init__ = __init__


if Node is not None:
    lighten(Node)
sys.argv = [command, *order["args"]]
runpy.run_path(command, run_name="__main__")
