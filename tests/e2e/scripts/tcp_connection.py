"""Keep two connections open across steps: to a peer without a timeout and to one with a timeout."""

import json
import os
import socket

import steps


class Connection:
    """Sends lines and waits for their echo. Reconnects when the peer has closed the connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.open()

    def open(self) -> None:
        self.stream = socket.create_connection((os.environ["PEER"], self.port)).makefile("rw")

    def send(self, text: str) -> None:
        while True:
            try:
                self.stream.write(text + "\n")
                self.stream.flush()
                if self.stream.readline() == text + "\n":
                    return
            except ConnectionError:
                pass
            self.open()


connections = [Connection(7001), Connection(7002)]
for step, value in steps.run():
    for connection in connections:
        connection.send(f"{os.environ['PODIUM_ATTEMPT']} {step}")
    print(json.dumps({"epoch": step, "loss": value}))
