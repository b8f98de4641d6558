#!/usr/bin/env python3
"""A loop of your own: claims a run, answers it, settles it. Standard library only.

    KEEL_BASE_URL=http://127.0.0.1:4870 KEEL_API_KEY=keel_dev.local_not-a-secret python3 examples/owner.py

It answers each input with its words in reverse. What every owner must do is here: show the lease with each write, keep it
while the answer takes long, hand the run over when asked to end, stop when fenced, and settle once.
"""

import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.request
import uuid

BASE = os.environ.get("KEEL_BASE_URL", "http://127.0.0.1:4870")
KEY = os.environ.get("KEEL_API_KEY", "keel_dev.local_not-a-secret")
OWNER = f"owner.py-{uuid.uuid4().hex[:8]}"

draining = threading.Event()


class Fenced(Exception):
    """The run is somebody else's now. Write nothing more: the next owner goes on from the ledger."""


def call(path, body, tries=5):
    """POSTs. A call whose answer was lost is sent again as it was: it is carried out once (I6)."""
    request = urllib.request.Request(
        BASE + path,
        json.dumps(body).encode(),
        {"authorization": f"Bearer {KEY}", "content-type": "application/json"},
    )
    for left in reversed(range(tries)):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            problem = json.loads(error.read() or "{}")
            if problem.get("code") in ("fenced", "session_closed"):
                raise Fenced(problem["code"]) from error
            if error.code < 500 or not left:
                raise RuntimeError(problem) from error
        except OSError:
            if not left:
                raise
        draining.wait(0.5)


def keep(session, lease, stop):
    """Renews the lease until told to stop. (Commits extend it too.)"""
    while not stop.wait(3):
        try:
            call(f"/v1/sessions/{session}/lease/renew", {"lease": lease})
        except (Fenced, RuntimeError, OSError):
            return  # the next write will find out


def think(text):
    """The model. Yours may take minutes."""
    return " ".join(reversed(text.split()))


def answer(claimed):
    """Answers everything that the run was given, in one message, and settles (A1, S1)."""
    session = claimed["session"]["sessionId"]
    lease = {name: claimed["lease"][name] for name in ("owner", "epoch")}
    watermark = claimed["head"]["run"]["readWatermark"]
    unanswered = [seq for seq in claimed["head"]["unanswered"] if seq <= watermark]
    events = {event["seq"]: event for event in claimed["events"]}
    generation = uuid.uuid4().hex
    said = []
    for index, seq in enumerate(unanswered):
        if draining.is_set():
            # S5: costs no attempt. Partials of this generation end here (R3a).
            end = {"lease": lease, "generationId": generation, "index": index, "dead": "handed_over"}
            call(f"/v1/sessions/{session}/partials", end)
            call(f"/v1/sessions/{session}/lease/release", {"lease": lease, "reason": "drain"})
            return "handed over"
        line = think(events[seq]["payload"].get("text", "")) + "\n"
        chunk = {"lease": lease, "generationId": generation, "index": index, "delta": line}
        call(f"/v1/sessions/{session}/partials", chunk)
        said.append(line)
    message = {
        "role": "assistant",
        "generationId": generation,
        "content": [{"type": "text", "text": "".join(said)}],
        "inputSeqs": unanswered,
        "stopReason": "end_turn",
    }
    event = {"kind": "assistant.message", "generationId": generation, "payload": message}
    call(f"/v1/sessions/{session}/commits", {"lease": lease, "events": [event]})
    summary = {"status": "done", "turns": 1}
    settled = call(f"/v1/sessions/{session}/settle", {"lease": lease, "outcome": "succeeded", "summary": summary})
    return settled["run"]["status"]


def main():
    signal.signal(signal.SIGTERM, lambda *_: draining.set())
    signal.signal(signal.SIGINT, lambda *_: draining.set())
    print(f"{OWNER} asks {BASE} for runs", flush=True)
    while not draining.is_set():
        claimed = call("/v1/runs/claim", {"owner": OWNER, "waitSeconds": 5})
        if claimed is None:
            continue
        session = claimed["session"]["sessionId"]
        lease = {name: claimed["lease"][name] for name in ("owner", "epoch")}
        stop = threading.Event()
        keeper = threading.Thread(target=keep, args=(session, lease, stop), daemon=True)
        keeper.start()
        try:
            print(f"{session}: {answer(claimed)}", flush=True)
        except Fenced as why:
            print(f"{session}: {why}, another owner goes on", flush=True)
        finally:
            stop.set()
    return 0


if __name__ == "__main__":
    sys.exit(main())
