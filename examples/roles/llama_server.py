"""A server with an OpenAI API for nodes without GPUs: llama.cpp, from PyPI's xllamacpp.

    python llama_server.py MODEL.gguf --port PORT

Like vllm serve, it takes its key from VLLM_API_KEY, and is ready when /health answers.
"""

import argparse
import os
import signal

import xllamacpp

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--port", type=int, required=True)
arguments = parser.parse_args()

params = xllamacpp.CommonParams()
params.model.path = arguments.model
params.hostnames = ["0.0.0.0"]
params.port = arguments.port
params.n_parallel = 8  # requests that are answered at the same time
params.n_ctx = 8 * 512  # tokens of all of these
params.cpuparams.n_threads = 1
params.warmup = False
if os.environ.get("VLLM_API_KEY"):
    params.api_keys = [os.environ["VLLM_API_KEY"]]

server = xllamacpp.Server(params)  # it serves until this process ends
print("serving", arguments.model, "at", server.listening_address, flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
os._exit(0)
