"""A session with three tools, a person who must agree to one of them, and another agent. Against `make dev`.

The tools are in this file: a plugin is a POST, signed as Standard Webhooks, to wherever the tools are.
"""

import base64
import hashlib
import hmac
import json
import os
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

KEEL = os.environ.get("KEEL_BASE_URL", "http://127.0.0.1:4870")
KEY = os.environ.get("KEEL_API_KEY", "keel_dev.local_not-a-secret")
SECRET = b"visibly fake, and twenty-four bytes"
SESSION = "/v1/sessions/tour"


def call(method, path, body=None):
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(KEEL + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


class Tools(BaseHTTPRequestHandler):
    """The tools: whoever calls must have signed."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
        expected = "v1," + base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
        sent = json.loads(body)
        if not hmac.compare_digest(expected, self.headers["webhook-signature"]):
            return self.answer(401, {"output": "who are you?"})
        asked = sent["arguments"]
        if sent["tool"] == "price":
            return self.answer(200, {"output": {"item": asked["item"], "usd": 12}})
        self.answer(200, {"output": f"ordered {asked['count']} of {asked['item']}"})

    def answer(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def schema(**properties):
    kinds = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": kinds, "required": list(kinds)}


def frames():
    """The session's stream, frame by frame, until nothing runs."""
    request = urllib.request.Request(
        f"{KEEL}{SESSION}/events/stream?until=settled", headers={"Authorization": f"Bearer {KEY}"}
    )
    event = "message"
    with urllib.request.urlopen(request, timeout=60) as stream:
        for line in stream:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                yield event, json.loads(value)
                event = "message"


def shown(event):
    """An event in a line or two."""
    payload = event["payload"]
    lines = [f"{event['seq']} {event['kind']}"]
    if "text" in payload:
        lines.append("  " + payload["text"].split("\n")[0] + " …")
    for block in payload.get("content", []):
        if block["type"] == "text":
            lines.append("  " + ("! " if payload.get("isError") else "") + block["text"])
        if block["type"] == "toolCall":
            lines.append(f"  calls {block['name']} {json.dumps(block['arguments'])}")
    if event["kind"] == "run.finished":
        lines.append(f"  {payload['status']}, attempt {payload['attempt']}")
    return "\n".join(lines)


def main():
    server = HTTPServer(("127.0.0.1", 0), Tools)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    secret = "whsec_" + base64.b64encode(SECRET).decode()
    call("PUT", "/v1/settings/secrets/shop", {"value": secret})
    order = {"name": "order", "parameters": schema(item="string", count="integer"),
             "approval": {"when": [{"pointer": "/count", "above": 10}]}}
    call("PUT", "/v1/plugins/shop", {
        "kind": "http", "url": f"http://127.0.0.1:{server.server_port}/", "secret": "shop",
        "tools": [{"name": "price", "parameters": schema(item="string")}, order],
    })
    call("POST", "/v1/sessions", {"sessionId": "tour", "title": "A tour"})
    # The fake model does as it is told; a real one would come to this by itself.
    script = [
        "!say I ask for the price, order pencils and paper, and have somebody look for a better shop.",
        '!tool price {"item": "pencil"}',
        '!tool order {"item": "paper", "count": 5}',
        '!tool order {"item": "pencil", "count": 500}',
        '!tool agent {"task": "!say There is no better shop.", "title": "scout"}',
        "!then",
        "!say Paper and pencils are on their way.",
    ]
    call("POST", f"{SESSION}/input", {"text": "\n".join(script), "requestId": "r1"})
    results = {}
    for name, data in frames():
        if name == "decision.opened":
            print(f"A person is asked: {data['toolName']} {json.dumps(data['arguments'])}?")
            while call("GET", SESSION)["run"]["status"] != "waiting":
                pass  # the other calls may still run
            run = call("GET", SESSION)["run"]
            print(f"The run is {run['status']}: no lease, no function, attempts spent {run['attempts']}.")
            answer = {"answer": "edit", "digest": data["digest"], "arguments": {**data["arguments"], "count": 50}}
            said = call("POST", f"/v1/decisions/{data['id']}", answer)
            print(f"They say {said['answer']['answer']}: {json.dumps(said['answer']['arguments'])}\n")
        elif name == "message":
            results[data["seq"]] = data
    # Results come in any order, and are presented in the order of the calls.
    for entry in call("GET", f"{SESSION}/transcript")["entries"]:
        print(shown({**entry, "seq": "·"} if entry["kind"] == "tool.result" else entry))
    print(shown(results[max(results)]))
    child = call("GET", f"{SESSION}/subagents")["subagents"][0]
    print(f"\n{child['title']}, depth {child['depth']}: {child['run']['status']}, {child['seq']} events of its own")


if __name__ == "__main__":
    main()
