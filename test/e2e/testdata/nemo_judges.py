"""A driver for examples/roles/nemo_rl.yaml: a task on each node of the cluster runs code in the sandbox
of its node, and asks the judges until the file "finish" exists. Prints what each task has done."""

import json
import os
import time
import urllib.error
import urllib.request

import ray

KEYS = {role: os.environ[f"BRINGUPD_ROLE_{role}_KEY"] for role in ("SANDBOX", "JUDGE")}
JUDGE_URL, WORK = os.environ["JUDGE_URL"], os.getcwd()


def post(url, role, body):
    request = urllib.request.Request(url, data=body, headers={"Authorization": "Bearer " + KEYS[role]})
    with urllib.request.urlopen(request) as answer:
        return answer.read()


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def roll_out(number):
    output = post("http://localhost:6000/run", "SANDBOX", f"print({number} + 40)".encode()).decode()
    prompt = json.dumps({"model": "judge", "prompt": "good?", "max_tokens": 4}).encode()
    asked = answered = 0
    while not os.path.exists(f"{WORK}/finish"):
        asked += 1
        while True:
            try:
                answered += "choices" in json.loads(post(JUDGE_URL + "/completions", "JUDGE", prompt))
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        with open(f"{WORK}/asking.{number}", "w", encoding="utf-8") as file:
            file.write(str(answered))
    return f"task {number}: sandbox {output.strip()}, all answered: {asked == answered > 0}"


ray.init()
nodes = [node for node in ray.nodes() if node["Alive"]]
for result in ray.get([roll_out.remote(number) for number in range(len(nodes))]):
    print(result, flush=True)
