"""Asks this node's kubelet for a checkpoint of one container (KEP-2008, `POST /checkpoint/NAMESPACE/POD/CONTAINER`).

Used by `move`. The agent calls with its own account's token, which needs the verb `create` on `nodes/checkpoint` and
nothing else; the kubelet's certificate is verified. The container works on afterwards: the kubelet never ends it.
A frozen container cannot be checkpointed (the runtime pauses it itself): it must be thawed first.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from podium_agent.migration.refusal import MoveError

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0  # beyond the time that the runtime itself is given
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Container:
    """A container as the kubelet calls it."""

    namespace: str
    pod: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.name}"


@dataclass(frozen=True, slots=True)
class Kubelet:
    """`authority`: a PEM file that the kubelet's certificate is verified with. `token`: read at each call, it is
    renewed while the agent runs."""

    address: str
    port: int = 10250
    authority: Path = ACCOUNT / "ca.crt"
    token: Path = ACCOUNT / "token"

    async def checkpoint(self, container: Container, seconds: float) -> Path:
        """The archive's path as the node sees it. `seconds`: for the runtime (the kubelet's own limit is 2 minutes).

        Raises MoveError. An answer that does not come leaves it open whether an archive was or will be written.
        """
        host = f"[{self.address}]" if ":" in self.address else self.address
        url = f"https://{host}:{self.port}/checkpoint/{container.namespace}/{container.pod}/{container.name}"
        limits = aiohttp.ClientTimeout(total=seconds + ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        try:
            trust = ssl.create_default_context(cafile=str(self.authority))
            headers = {"Authorization": f"Bearer {self.token.read_text().strip()}"}
            async with (
                aiohttp.ClientSession(timeout=limits, headers=headers) as session,
                session.post(url, params={"timeout": str(max(1, round(seconds)))}, ssl=trust) as response,
            ):
                body = await response.text(errors="replace")
                if response.status != 200:
                    raise refused(container, response.status, body)
        except aiohttp.ClientConnectorCertificateError as error:
            raise MoveError(
                "KubeletCertificateInvalid",
                f"the kubelet at {url} shows a certificate that {self.authority} does not verify ({error}): let the "
                "cluster sign it (serverTLSBootstrap) or name its authority (PODIUM_KUBELET_AUTHORITY)",
            ) from error
        except TimeoutError as error:
            raise MoveError(
                "CheckpointTimeout",
                f"the kubelet gave no archive of {container} within {seconds:g} s: allow it more time",
            ) from error
        except (OSError, aiohttp.ClientError) as error:
            raise MoveError("KubeletUnreachable", f"{url}: {error}; can the agent reach its kubelet?") from error
        return archive_in(container, body)


def refused(container: Container, status: int, body: str) -> MoveError:
    """What the kubelet's answer means. Pure."""
    said = " ".join(body.split())[:500]
    match status:
        case 401 | 403:
            cure = "allow the agent's account `create` on `nodes/checkpoint`"
            return MoveError("CheckpointForbidden", f"the kubelet lets the agent checkpoint nothing ({said}): {cure}")
        case 404 if "not found" not in said or "page not found" in said:
            cure = "turn the kubelet's feature gate ContainerCheckpoint on"
            return MoveError("CheckpointAPIDisabled", f"the kubelet has no checkpoint API ({said}): {cure}")
        case 404:
            return MoveError("ContainerNotRunning", f"the kubelet knows no container {container} ({said})")
    if "CRIU" in said and "not found" in said:
        return MoveError("CRIUMissing", f"the runtime finds no CRIU that is new enough ({said}): install it")
    return MoveError("CheckpointFailed", f"the runtime cannot checkpoint {container} ({status}: {said})")


def archive_in(container: Container, body: str) -> Path:
    """The path in the kubelet's answer `{"items": [PATH]}`. Pure."""
    try:
        (item,) = json.loads(body)["items"]
        return Path(str(item))
    except (ValueError, KeyError, TypeError) as error:
        message = f"the kubelet answered for {container} with no path of an archive: {body[:200]}"
        raise MoveError("CheckpointFailed", message) from error
