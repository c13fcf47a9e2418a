"""Echo the lines of the scripts' connections, and print each line with its connection and time.

On port 7001 it has no timeout. On port 7002 it closes a connection after two idle seconds, as servers and proxies do.
"""

import json
import socketserver
import threading
import time

TIMEOUTS = {7001: None, 7002: 2.0}


class Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        port = self.server.server_address[1]
        self.request.settimeout(TIMEOUTS[port])
        connection = self.client_address[1]
        try:
            for line in self.rfile:
                heard = {"port": port, "connection": connection, "line": line.decode().strip()}
                print(json.dumps({**heard, "at": time.monotonic()}), flush=True)
                self.wfile.write(line)
        except OSError as error:
            ended = {"port": port, "connection": connection, "ended": str(error)}
            print(json.dumps({**ended, "at": time.monotonic()}), flush=True)


for port in TIMEOUTS:
    server = socketserver.ThreadingTCPServer(("", port), Echo)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever).start()
