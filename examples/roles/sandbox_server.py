"""A sandbox that runs Python code: POST /run with the code as the body returns its output.

Limits keep code from using up a node, not from attacking it: run the server in a container of its
own if you do not trust the code. The clients need the key of the role.
"""

import http.server
import os
import resource
import subprocess
import sys

KEY = os.environ[f"BRINGUPD_ROLE_{os.environ['BRINGUPD_ROLE'].upper().replace('-', '_')}_KEY"]
SECONDS, BYTES = 30, 1 << 30


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))


class Sandbox(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        if self.headers["Authorization"] != "Bearer " + KEY:
            self.send_error(401)
            return
        code = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-"],
                input=code,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={},
                timeout=SECONDS,
                preexec_fn=limit,
            )
        except subprocess.TimeoutExpired:
            self.send_error(408)
            return
        self.send_response(200 if done.returncode == 0 else 422)
        self.send_header("Content-Length", str(len(done.stdout)))
        self.end_headers()
        self.wfile.write(done.stdout)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("", int(os.environ["BRINGUPD_PORT"])), Sandbox).serve_forever()
