"""Two connections that stay open from step to step: one peer waits for ever, the other hangs up on who is silent."""

import json
import os
import socket

import steps


class Talk:
    """Says a line and waits for its echo; connects anew when the peer has hung up."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.open()

    def open(self) -> None:
        self.stream = socket.create_connection((os.environ["PEER"], self.port)).makefile("rw")

    def say(self, text: str) -> None:
        while True:
            try:
                self.stream.write(text + "\n")
                self.stream.flush()
                if self.stream.readline() == text + "\n":
                    return
            except ConnectionError:
                pass
            self.open()


talks = [Talk(7001), Talk(7002)]
for step, value in steps.run():
    for talk in talks:
        talk.say(f"{os.environ['PODIUM_ATTEMPT']} {step}")
    print(json.dumps({"epoch": step, "loss": value}))
