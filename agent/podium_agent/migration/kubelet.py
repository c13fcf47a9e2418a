"""Ask this node's kubelet for a checkpoint of one container (KEP-2008, `POST /checkpoint/NAMESPACE/POD/CONTAINER`).

The agent uses the token of its own account, which needs only the verb `create` on `nodes/checkpoint`. It verifies the
kubelet's certificate. The container continues to run afterwards. A frozen container must be thawed first, because the
runtime pauses it itself.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from podium_agent.migration.errors import MigrationError
from podium_cluster.access.answers import read_start

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0  # in addition to the runtime's own time limit
ANSWER_BYTES = 2**16  # read of a response
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class ContainerRef:
    """A container as the kubelet names it."""

    namespace: str
    pod: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.name}"


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The kubelet of this node.

    `authority` is a PEM file with the certificate authority. `token` is read at each call, because it is renewed while
    the agent runs.
    """

    address: str
    port: int = 10250
    authority: Path = ACCOUNT / "ca.crt"
    token: Path = ACCOUNT / "token"

    async def checkpoint(self, container: ContainerRef, seconds: float) -> Path:
        """Checkpoint a container and return the path of the archive on the node.

        `seconds` is the time limit of the runtime (the kubelet's default is 2 minutes). Raises MigrationError. After a
        timeout the runtime may still write an archive.
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
                body = (await read_start(response.content.iter_any(), ANSWER_BYTES)).decode(errors="replace")
                if response.status != 200:
                    raise error_from_response(container, response.status, body)
        except aiohttp.ClientConnectorCertificateError as error:
            raise MigrationError(
                "KubeletCertificateInvalid",
                f"the kubelet at {url} has a certificate that {self.authority} does not verify ({error}); let the "
                "cluster sign it (serverTLSBootstrap) or set PODIUM_KUBELET_AUTHORITY to its authority",
            ) from error
        except TimeoutError as error:
            raise MigrationError(
                "CheckpointTimeout",
                f"the kubelet returned no archive of {container} within {seconds:g} s; "
                "increase PODIUM_MIGRATION_STEP_SECONDS",
            ) from error
        except (OSError, aiohttp.ClientError) as error:
            raise MigrationError("KubeletUnreachable", f"{url}: {error}; can the agent reach its kubelet?") from error
        return archive_path(container, body)


def error_from_response(container: ContainerRef, status: int, body: str) -> MigrationError:
    """Return the error that the kubelet's response describes. Pure."""
    answer = " ".join(body.split())[:500]
    match status:
        case 401 | 403:
            cure = "allow the agent's account `create` on `nodes/checkpoint`"
            return MigrationError(
                "CheckpointForbidden", f"the kubelet forbids the agent to checkpoint ({answer}); {cure}"
            )
        case 404 if "not found" not in answer or "page not found" in answer:
            cure = "turn on the kubelet's feature gate ContainerCheckpoint"
            return MigrationError("CheckpointAPIDisabled", f"the kubelet has no checkpoint API ({answer}); {cure}")
        case 404:
            return MigrationError("ContainerNotRunning", f"the kubelet does not know container {container} ({answer})")
    if "CRIU" in answer and "not found" in answer:
        return MigrationError("CRIUMissing", f"the runtime does not find a suitable CRIU ({answer}); install CRIU")
    return MigrationError("CheckpointFailed", f"the runtime cannot checkpoint {container} ({status}: {answer})")


def archive_path(container: ContainerRef, body: str) -> Path:
    """Return the path in the kubelet's answer `{"items": [PATH]}`. Pure."""
    try:
        (item,) = json.loads(body)["items"]
        return Path(str(item))
    except (ValueError, KeyError, TypeError) as error:
        message = f"the kubelet's answer for {container} does not contain the path of an archive: {body[:200]}"
        raise MigrationError("CheckpointFailed", message) from error
