"""An S3 server in memory for the tests of the checkpoint store: Moto, one request at a time.

Moto looks whether an object exists and then writes it. One request at a time makes that one step, as in S3 itself.
Two buckets are as servers are that the store must refuse:

  ignores-the-condition   If-None-Match is not looked at
  looks-then-writes       two requests that come together both see that there is no object, and both write it

It ends when its standard input does: with whoever started it, however that one went.
"""

import os
import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import Client

CONDITION = "HTTP_IF_NONE_MATCH"
# How long a request that has looked waits for another one that looks.
MEETING_SECONDS = 0.3


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_):
        pass


class OneAtATime:
    def __init__(self, moto):
        self.moto = moto
        self.lock = threading.Lock()
        self.meeting = threading.Barrier(2)

    def __call__(self, environ, start_response):
        bucket = environ["PATH_INFO"].split("/")[1]
        if bucket == "ignores-the-condition":
            environ.pop(CONDITION, None)
        if bucket == "looks-then-writes" and environ.get(CONDITION) and not self.exists(environ):
            self.meet()
            environ.pop(CONDITION)
        return self.serve(environ, start_response)

    def serve(self, environ, start_response):
        with self.lock:
            answer = self.moto(environ, start_response)
            try:
                return [b"".join(answer)]
            finally:
                if hasattr(answer, "close"):
                    answer.close()

    def exists(self, environ):
        look = {name: environ[name] for name in environ if name != CONDITION}
        look.update(REQUEST_METHOD="HEAD", CONTENT_LENGTH="0")
        statuses = []
        self.serve(look, lambda status, headers, *_: statuses.append(status))
        return statuses[0].startswith("200")

    def meet(self):
        try:
            self.meeting.wait(MEETING_SECONDS)
        except threading.BrokenBarrierError:
            self.meeting.reset()


def end_with_input():
    sys.stdin.read()
    os._exit(0)


application = OneAtATime(DomainDispatcherApplication(create_backend_app))
for name in ("levada", "ignores-the-condition", "looks-then-writes"):
    made = Client(application).put(f"/{name}", headers={"Authorization": "AWS nobody:nothing"})
    assert made.status_code == 200, made.text
server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
threading.Thread(target=end_with_input, daemon=True).start()
# The first line: the port. Whoever starts this waits for it.
print(server.server_port, flush=True)
server.serve_forever()
