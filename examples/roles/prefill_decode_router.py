"""A router that sends each request to a server of the role prefill, and then to one of decode.

Prefill computes a single token. If its answer says where its KV cache is (kv_transfer_params of
vLLM), the request to decode says so, too. If a server dies, the request is sent to another one. The
router has the key of the servers, and requires it of its clients. Answers are not streamed.
"""

import http.client
import http.server
import itertools
import json
import os
import sys
import time

KEY = os.environ["BRINGUPD_ROLE_ROUTER_KEY"]
GIVE_UP = 600  # seconds
turn = itertools.count()


def forward(role, method, path, body=None):
    """Returns the status and the body of the answer of a server of the role."""
    deadline = time.monotonic() + GIVE_UP
    while True:
        with open(os.environ[f"BRINGUPD_ENDPOINTS_FILE_{role}"], encoding="utf-8") as file:
            ready = file.read().split()
        try:
            if not ready:
                raise ConnectionError(f"no server of {role} is ready")
            server = http.client.HTTPConnection(ready[next(turn) % len(ready)], timeout=GIVE_UP)
            headers = {"Authorization": "Bearer " + KEY, "Content-Type": "application/json"}
            server.request(method, path, body and json.dumps(body), headers)
            answer = server.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > deadline:
                return 503, json.dumps({"error": {"message": str(error)}}).encode()
            print(f"{role}: {error}; the request is sent again", file=sys.stderr, flush=True)
            time.sleep(0.05)


class Router(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(lambda: forward("DECODE", "GET", self.path))

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(lambda: self.complete(json.loads(body)))

    def complete(self, request):
        first = dict(request, max_tokens=1, stream=False)
        first["kv_transfer_params"] = {"do_remote_decode": True}
        status, answer = forward("PREFILL", "POST", self.path, first)
        if status != 200:
            return status, answer
        request["stream"] = False
        if cache := json.loads(answer).get("kv_transfer_params"):
            request["kv_transfer_params"] = cache
        return forward("DECODE", "POST", self.path, request)

    def answer(self, result):
        if self.headers["Authorization"] == "Bearer " + KEY:
            status, body = result()
        else:
            status, body = 401, b'{"error": {"message": "wrong key"}}'
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("", int(os.environ["BRINGUPD_PORT"])), Router).serve_forever()
