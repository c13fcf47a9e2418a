"""A headless Chromium, driven by its DevTools protocol over a WebSocket on loopback."""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from podium_devcluster.artifacts import debian
from podium_devcluster.progress import Progress
from podium_devcluster.shell import CommandError

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0")
START_SECONDS, ANSWER_SECONDS = 60.0, 60.0


@cache
def needed_browser() -> str:
    """Return the path of a Chromium, which root's apt-get installs if there is none; else skip the test."""
    try:
        debian.install_packages([NAMES[0]], Progress(), only_if=_installed() is None)
    except (debian.PackageError, CommandError) as error:
        pytest.skip(f"needs a Chromium on the path: {error}")
    program = _installed()
    assert program, f"{NAMES[0]} was installed, but it is not on the path"
    return program


def _installed() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Tab:
    """One tab of the browser, with what its console and its network reported."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._session: str | None = None
        self._numbers = iter(range(1, 1 << 30))
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.errors: list[str] = []
        self.requests: list[str] = []

    async def open(self) -> None:
        """Create the tab and listen to its console and network."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = waiting
        await self._socket.send_json(message)
        answer = await asyncio.wait_for(waiting, ANSWER_SECONDS)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer.get("result", {})
        return result

    async def read(self) -> None:
        """Read answers and events until the connection ends."""
        async for message in self._socket:
            body = message.json()
            if "id" in body:
                waiting = self._answers.pop(body["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(body)
            else:
                self._note(body["method"], body.get("params", {}))

    def _note(self, method: str, body: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(body["exceptionDetails"].get("exception", body)))
        elif method == "Runtime.consoleAPICalled" and body["type"] in ("error", "warning"):
            self.errors.append(str(body["args"]))
        elif method == "Log.entryAdded" and body["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{body['entry']['text']} {body['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(body["request"]["url"])

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    async def wait(self, expression: str, seconds: float = 30.0) -> Any:
        """Wait until an expression is true in the page, and return its value."""
        found = None
        async with asyncio.timeout(seconds):
            while not found:
                found = await self.evaluate(expression)
                if not found:
                    await asyncio.sleep(0.05)
        return found

    async def go(self, url: str) -> None:
        """Open an address and wait until the page lives."""
        await self.call("Page.navigate", url=url)
        await self.wait("document.readyState === 'complete' && !!document.querySelector('#light[data-state=live]')")

    async def look(self, *, width: int, height: int, dark: bool) -> None:
        """Set the size of the window and the colour scheme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def key(self, name: str, code: int) -> None:
        """Press and release a key."""
        text = {"text": "\r"} if name == "Enter" else {}  # without it, Enter follows no link
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **text
            )

    async def screenshot(self) -> bytes:
        """Return the visible part of the page as PNG."""
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=False)
        return base64.b64decode(answer["data"])


@asynccontextmanager
async def chromium(program: str, profile: Path) -> AsyncIterator[Tab]:
    """Run a browser with one tab for the duration of the block."""
    command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        address = await asyncio.wait_for(_address(process), START_SECONDS)
        draining = asyncio.create_task(_drain(process))
        async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
            tab = Tab(socket)
            reading = asyncio.create_task(tab.read())
            try:
                await tab.open()
                yield tab
                with suppress(Exception):
                    await tab.call("Browser.close")
            finally:
                reading.cancel()
                draining.cancel()
                await asyncio.gather(reading, draining, return_exceptions=True)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    while line := await process.stderr.readline():
        found = re.search(rb"DevTools listening on (ws://\S+)", line)
        if found:
            return found[1].decode()
    raise AssertionError("the browser ended before it listened")


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while await process.stderr.read(1 << 16):
        pass
