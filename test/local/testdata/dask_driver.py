"""A driver for --framework=dask: python dask_driver.py count | refused | hold | restart

count    prints the workers, lets them compute, and copies the run's certificate to other.pem
refused  prints the result of connecting with the certificate of another run, in other.pem, and without a certificate
hold     writes the pids of the scheduler, the workers and their nannies to files, and waits
restart  kills a worker that has a nanny, waits for the new one, and continues like hold
"""

import os
import shutil
import signal
import socket
import ssl
import sys
import time

from dask.distributed import Client, Security

ADDRESS = os.environ["DASK_SCHEDULER_ADDRESS"]


def workers(client):
    found = client.scheduler_info(n_workers=-1)["workers"]
    return {worker["name"]: (address, worker) for address, worker in found.items()}


def pids(client, nanny=False):
    """Returns the pids of the workers that are in both lists: one that has just joined or left may be missing in one."""
    by_address = client.run(os.getpid, nanny=nanny)
    return {name: by_address[address] for name, (address, _) in workers(client).items() if address in by_address}


def restarted(client, before, killed):
    try:
        after = pids(client)
    except OSError:  # the scheduler does not know yet that the worker has died
        return False
    return len(after) == len(before) and after[killed] != before[killed]


def leave(name, pid):
    with open(name + ".new", "w") as file:
        file.write(str(pid))
    os.rename(name + ".new", name)


def count():
    with Client() as client:
        for name, (address, worker) in sorted(workers(client).items()):
            print(name, address.split(":")[0], worker["nthreads"], worker["resources"])
        print("the sum of the squares is", sum(client.gather(client.map(lambda n: n * n, range(100)))))
    if certificate := os.environ.get("DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT"):
        print(f"its mode is {os.stat(certificate).st_mode & 0o777:o}")
        shutil.copy(certificate, "other.pem")


def refused():
    other = Security(require_encryption=True, tls_ca_file="other.pem", tls_client_cert="other.pem", tls_client_key="other.pem")
    try:
        Client(ADDRESS, security=other, timeout="5s")
        print("another run's certificate is let in")
    except OSError:
        print("another run's certificate is refused")
    host, port = ADDRESS.removeprefix("tls://").split(":")
    try:
        with socket.create_connection((host, port)) as plain, ssl._create_unverified_context().wrap_socket(plain) as tls:
            tls.sendall(b"hello")
            print("no certificate is let in", tls.recv(1))
    except ssl.SSLError as error:
        print("no certificate is refused:", error.reason)


def hold(restart=False):
    with Client() as client:
        if restart:
            before = pids(client)
            killed = sorted(before)[1]
            os.kill(before[killed], signal.SIGKILL)
            while not restarted(client, before, killed):
                time.sleep(0.1)
            print(killed, "works again", flush=True)
            for name, pid in pids(client, nanny=True).items():
                leave("nanny." + name, pid)
        for name, pid in pids(client).items():
            leave("worker." + name, pid)
        leave("scheduler", client.run_on_scheduler(os.getpid))
        time.sleep(600)


{"count": count, "refused": refused, "hold": hold, "restart": lambda: hold(restart=True)}[sys.argv[1]]()
