#!/usr/bin/env python3
"""A bootstrap for a gateway that cannot stream: the real one beside it runs against a runtime API that hands each of its
streamed responses on in one piece, when it has ended."""

import base64
import http.client
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

UPSTREAM = os.environ["AWS_LAMBDA_RUNTIME_API"]
# A streamed response: status and headers as JSON, eight NUL bytes, the body.
SEPARATOR = b"\0" * 8


def in_one_piece(streamed):
    prelude, _, body = streamed.partition(SEPARATOR)
    response = json.loads(prelude)
    try:
        return json.dumps({**response, "body": body.decode()}).encode()
    except UnicodeDecodeError:
        return json.dumps({**response, "body": base64.b64encode(body).decode(), "isBase64Encoded": True}).encode()


class Runtime(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(pieces)

    def pass_on(self):
        body = self.body()
        headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
        if self.headers.get("Lambda-Runtime-Function-Response-Mode") == "streaming" and SEPARATOR in body:
            body, headers = in_one_piece(body), {"Content-Type": "application/json"}
        upstream = http.client.HTTPConnection(UPSTREAM)
        upstream.request(self.command, self.path, body or None, headers)
        answer = upstream.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "server", "date"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = pass_on

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Runtime)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {**os.environ, "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{server.server_port}"}
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "streaming-bootstrap")
    os.chmod(program, 0o755)
    sys.exit(subprocess.call([program], env=environment))
