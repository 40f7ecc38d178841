"""A client of servers with an OpenAI API: asks each server of a role for its models.

The servers get the key of the role by their environment, for example with vLLM:

    - name: judge
      nodes: 1
      command: VLLM_API_KEY=$BRINGUPD_ROLE_JUDGE_KEY vllm serve $MODEL --port $BRINGUPD_PORT
      ready: http://localhost:$BRINGUPD_PORT/health
    - name: client
      nodes: head
      primary: true
      command: python examples/roles/openai_client.py judge
"""

import os
import sys

from openai import OpenAI


def variable_part(role):
    return role.upper().replace("-", "_")


def base_urls(role):
    """Returns the base URLs of the servers that are ready now. Call it again after an error."""
    with open(os.environ[f"BRINGUPD_ENDPOINTS_FILE_{variable_part(role)}"], encoding="utf-8") as file:
        return [f"http://{endpoint}/v1" for endpoint in file.read().split()]


def api_key(role):
    return os.environ[f"BRINGUPD_ROLE_{variable_part(role)}_KEY"]


if __name__ == "__main__":
    name = sys.argv[1]
    for url in base_urls(name):
        client = OpenAI(base_url=url, api_key=api_key(name))
        print(url, *(model.id for model in client.models.list()))
