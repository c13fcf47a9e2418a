"""The other end of the scripts' connections: echoes lines, and prints who said what on which connection, when.

On port 7001 it waits for ever; on 7002 it hangs up on who says nothing for two seconds, as servers and proxies do.
"""

import json
import socketserver
import threading
import time

PATIENCE = {7001: None, 7002: 2.0}


class Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        port = self.server.server_address[1]
        self.request.settimeout(PATIENCE[port])
        connection = self.client_address[1]
        try:
            for line in self.rfile:
                heard = {"port": port, "connection": connection, "line": line.decode().strip()}
                print(json.dumps({**heard, "at": time.monotonic()}), flush=True)
                self.wfile.write(line)
        except OSError as error:
            ended = {"port": port, "connection": connection, "ended": str(error)}
            print(json.dumps({**ended, "at": time.monotonic()}), flush=True)


for port in PATIENCE:
    server = socketserver.ThreadingTCPServer(("", port), Echo)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever).start()
