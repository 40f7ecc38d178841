"""A client of servers with an OpenAI API: asks each server of a role for its models.

The servers get the key of the role by their environment, for example with vLLM:

    - name: judge
      nodes: 1
      command: exec vllm serve $MODEL --port $BRINGUPD_PORT
      env: {VLLM_API_KEY: $BRINGUPD_ROLE_JUDGE_KEY}
      ready: http://localhost:$BRINGUPD_PORT/health
    - name: client
      nodes: head
      primary: true
      command: python examples/roles/openai_client.py judge
"""

import itertools
import os
import sys
import threading
import time

from openai import APIConnectionError, InternalServerError, OpenAI


def variable_part(role):
    return role.upper().replace("-", "_")


def base_urls(role):
    """Returns the base URLs of the servers that are ready now. Call it again after an error."""
    path = os.environ[f"BRINGUPD_ENDPOINTS_FILE_{variable_part(role)}"]
    with open(path, encoding="utf-8") as file:
        return [f"http://{endpoint}/v1" for endpoint in file.read().split()]


def api_key(role):
    return os.environ[f"BRINGUPD_ROLE_{variable_part(role)}_KEY"]


class Servers:
    """The servers of a role, of which each request gets the next one that is ready.

    Several threads may use it.
    """

    def __init__(self, role, give_up=600):
        self.role, self.give_up = role, give_up
        self.repeated = 0  # how many times a request was sent again
        self._clients, self._turn, self._lock = {}, itertools.count(), threading.Lock()

    def ask(self, request):
        """Returns request(client) of a server.

        If a server cannot be reached, dies before it has answered or is overloaded, the request is
        sent to the next one, for give_up seconds.
        """
        deadline = time.monotonic() + self.give_up
        while True:
            urls = base_urls(self.role)
            try:
                if urls:
                    return request(self._client(urls[next(self._turn) % len(urls)]))
            except (APIConnectionError, InternalServerError):
                if time.monotonic() > deadline:
                    raise
                with self._lock:
                    self.repeated += 1
            if time.monotonic() > deadline:
                raise TimeoutError(f"no server of {self.role} was ready for {self.give_up} seconds")
            time.sleep(0.05)

    def _client(self, url):
        with self._lock:
            if url not in self._clients:
                self._clients[url] = OpenAI(base_url=url, api_key=api_key(self.role), max_retries=0)
            return self._clients[url]


if __name__ == "__main__":
    name = sys.argv[1]
    for url in base_urls(name):
        client = OpenAI(base_url=url, api_key=api_key(name))
        print(url, *(model.id for model in client.models.list()))
