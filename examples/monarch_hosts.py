"""PyTorch Monarch on all nodes: a Monarch host on each node, and a driver that spawns actors on them.

    bringupd --worker-cmd='exec python monarch_hosts.py host' --worker-ready=tcp:7100 -- python monarch_hosts.py
"""

import os
import socket
import sys

from monarch.actor import Actor, attach_to_workers, enable_transport, endpoint, run_worker_loop_forever

PORT = 7100


class Where(Actor):
    @endpoint
    def host(self):
        return socket.gethostname()


def url(host):
    return f"tcp://{host}:{PORT}"


if __name__ == "__main__":
    if sys.argv[1:] == ["host"]:
        run_worker_loop_forever(address=url(os.environ["BRINGUPD_NODE_HOST"]), ca="trust_all_connections")
    enable_transport("tcp")  # the hosts use it, too
    hosts = attach_to_workers(ca="trust_all_connections", workers=[url(host) for host in os.environ["BRINGUPD_HOSTS"].split(",")])
    actors = hosts.spawn_procs({"gpus": 2}).spawn("where", Where)
    print("\n".join(sorted(host for _, host in actors.host.call().get())))
