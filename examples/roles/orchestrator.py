"""An orchestrator of reinforcement learning: makes batches of the answers of the servers of a role.

    python orchestrator.py ROLE

The trainer gets batch N of STEPS (10) from /batch/N, while the next one is made. The orchestrator
ends when the trainer has the last one.
"""

import concurrent.futures
import http.server
import json
import os
import sys
import threading

from openai_client import Servers, api_key

STEPS = int(os.environ.get("STEPS", "10"))
MODEL = os.environ.get("MODEL", "")
KEY = api_key(os.environ["BRINGUPD_ROLE"])
SIZE = 16  # of a batch

batches = [concurrent.futures.Future() for _ in range(STEPS)]
fetched = threading.Event()


class Batches(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.headers["Authorization"] != "Bearer " + KEY:
            self.send_error(401)
            return
        step = int(self.path.removeprefix("/batch/"))
        if step >= STEPS:
            self.send_error(404)
            fetched.set()
            return
        body = json.dumps(batches[step].result()).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


web = http.server.ThreadingHTTPServer(("", int(os.environ["BRINGUPD_PORT"])), Batches)
threading.Thread(target=web.serve_forever, daemon=True).start()
servers = Servers(sys.argv[1])


def roll_out(prompt):
    """Returns the number of tokens of the answer, which stands for a reward."""
    answer = servers.ask(
        lambda client: client.completions.create(model=MODEL, prompt=prompt, max_tokens=16)
    )
    return answer.usage.completion_tokens


with concurrent.futures.ThreadPoolExecutor(8) as pool:
    for step, batch in enumerate(batches):
        batch.set_result(list(pool.map(roll_out, [f"{step}.{i}" for i in range(SIZE)])))
        print("batch", step, flush=True)
fetched.wait()
print(f"orchestrator: {STEPS * SIZE} rollouts, {servers.repeated} sent again", flush=True)
