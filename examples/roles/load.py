"""Sends requests to the servers of a role, and counts the answers.

    python load.py ROLE

It ends after REQUESTS (100), or when the file STOP_FILE exists.
"""

import concurrent.futures
import os
import sys

from openai_client import Servers

REQUESTS = int(os.environ.get("REQUESTS", "100"))
STOP_FILE = os.environ.get("STOP_FILE", "")
MODEL = os.environ.get("MODEL", "")
AT_ONCE = 8
servers = Servers(sys.argv[1])


def send(number):
    """Sends a request, and returns whether it was answered."""
    answer = servers.ask(
        lambda client: client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": f"request {number}"}], max_tokens=16
        )
    )
    return answer.choices[0].finish_reason in ("stop", "length")


asked = answered = 0
with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
    while asked < REQUESTS and not os.path.exists(STOP_FILE):
        numbers = range(asked, min(REQUESTS, asked + AT_ONCE * 4))
        asked, answered = asked + len(numbers), answered + sum(pool.map(send, numbers))
        print(answered, "answers so far", flush=True)
print(f"{asked} requests, {answered} answers, {servers.repeated} sent again", flush=True)
