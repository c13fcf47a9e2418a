"""The folders of the gates on this node: in each the gate helper and a socket, for one trial's pod.

A gate requests no slot, so the device plugin mounts nothing into it. It has an emptyDir volume instead, which is a
folder below the kubelet's and needs no right that a restricted namespace refuses. The agent fills it before the gate
can start: the kubelet starts no container of a pod before the agent has answered the allocation of the trial's slots.
A restarted agent serves the folders that it finds. docs/explanation/architecture.md explains why gates have no slots.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path

from podium_agent.node_setup import HELPER
from podium_agent.observe.pods import TRIAL_LABEL, TrialPod, parse
from podium_agent.schedule.exclusive_gpus import NodePod
from podium_agent.schedule.gate import SOCKET
from podium_agent.schedule.trial_socket import bind
from podium_agent.settings import AgentSettings
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS
from podium_cluster.watch import WatchCache
from podium_core.schema.template.pod_template import GATE_VOLUME

log = logging.getLogger(__name__)
LIST_SECONDS = 5.0  # the kubelet admits no other pod meanwhile
VOLUMES = "volumes/kubernetes.io~empty-dir"  # the kubelet's folder for the emptyDir volumes of a pod
FOLDERS = 3  # above a volume: those of the pod, of its volumes, and of its emptyDir volumes
FRESH = f".{HELPER}.new"
Listen = Callable[[socket.socket], Awaitable[asyncio.Server]]


class GateFolders:
    """Fills and serves the folders of gates.

    `trials` and `pods`: all of this node; `listen` serves a bound socket.
    """

    def __init__(
        self,
        settings: AgentSettings,
        api: Api,
        trials: WatchCache[TrialPod],
        pods: WatchCache[NodePod],
        listen: Listen,
    ) -> None:
        self._root, self._helper, self._node = settings.pods_dir, settings.helper, settings.node_name
        self._api, self._trials, self._pods, self._listen = api, trials, pods, listen
        self._servers: dict[str, asyncio.Server] = {}
        self._seen: set[str] = set()  # of these, those that the watch has shown
        self._one_by_one = asyncio.Lock()
        self._changed = asyncio.Event()
        trials.subscribe(self._changed.set)

    async def fill(self) -> None:
        """Fill the folders of all pods that the kubelet may be admitting.

        The kubelet names no pod when it allocates devices, and may know it before the watch does. So the pods are
        listed. If that fails, the watch has to suffice: a gate without its files fails, and its trial is requeued.
        """
        async with self._one_by_one:
            try:
                pods = await self._listed()
            except (ApiError, TimeoutError) as error:
                log.warning("gates of pods that the watch has not shown get no files, as listing failed: %s", error)
                pods = self._trials.values()
            waiting = {pod.uid for pod in pods if _has_folder(pod)}
            self._seen |= self._servers.keys() - waiting  # deleted before the watch showed them
            for uid in waiting:
                await self._serve(uid)
            self._changed.set()

    async def run(self) -> None:
        """Serve the folders of an earlier agent, and remove the files of pods that have ended."""
        await self._trials.wait_synced()
        await self._pods.wait_synced()
        async with self._one_by_one:
            there = self._servers.keys() | {pod.uid for pod in self._pods.values()}
            await asyncio.to_thread(self._remove_leftovers, there)
        while True:
            self._changed.clear()
            async with self._one_by_one:
                await self._follow({pod.uid for pod in self._trials.values() if _has_folder(pod)})
            await self._changed.wait()

    async def _listed(self) -> list[TrialPod]:
        async with asyncio.timeout(LIST_SECONDS):
            answer = await self._api.list(PODS, labels=TRIAL_LABEL, fields=f"spec.nodeName={self._node}")
        pods = []
        for payload in answer["items"]:
            with suppress(ValueError):  # the watch logs what is wrong with it
                pods.append(parse(payload))
        return pods

    async def _follow(self, there: set[str]) -> None:
        self._seen |= there & self._servers.keys()
        for uid in self._seen - there:
            if (server := self._servers.pop(uid, None)) is not None:
                server.close()
            await asyncio.to_thread(self._remove, uid)
        self._seen &= there
        for uid in there - self._servers.keys():
            if self._folder(uid).exists():
                await self._serve(uid)

    async def _serve(self, uid: str) -> None:
        """Fill a folder and listen in it. Does nothing if that was done and the files are still there."""
        folder = self._folder(uid)
        if uid in self._servers and all((folder / name).exists() for name in (HELPER, SOCKET)):
            return
        try:
            descriptor = await asyncio.to_thread(_install, folder, self._helper)
            try:
                # the path of the folder may be longer than the name of a socket may be
                listener = bind(Path(f"/proc/self/fd/{descriptor}") / SOCKET)
            finally:
                os.close(descriptor)
        except OSError as error:
            log.error("the gate of the pod with uid %s gets no files, so its trial is requeued: %s", uid, error)
            return
        before = self._servers.pop(uid, None)
        if before is not None:
            before.close()
        try:
            self._servers[uid] = await self._listen(listener)
        except OSError as error:
            listener.close()
            log.error("the gate of the pod with uid %s cannot connect, so its trial waits: %s", uid, error)
        except BaseException:
            listener.close()
            raise

    def _folder(self, uid: str) -> Path:
        return self._root / uid / VOLUMES / GATE_VOLUME

    def _remove(self, uid: str) -> None:
        """Remove the files, so that the kubelet can remove the folder of a pod that it never started."""
        for name in (HELPER, SOCKET, FRESH):
            with suppress(OSError):
                (self._folder(uid) / name).unlink()

    def _remove_leftovers(self, there: Iterable[str]) -> None:
        for folder in self._root.glob(f"*/{VOLUMES}/{GATE_VOLUME}"):
            uid = folder.relative_to(self._root).parts[0]
            if uid not in there:
                self._remove(uid)


def _has_folder(pod: TrialPod) -> bool:
    return pod.gate.present and pod.gate.volume and not pod.status.ended


def _install(folder: Path, helper: Path) -> int:
    """Put the helper into the folder, unless it is there; return a descriptor of the folder."""
    for made in (*reversed(folder.parents[:FOLDERS]), folder):
        with suppress(FileExistsError):
            made.mkdir(mode=0o750)  # as the kubelet makes them; it opens the last one for all users
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _is_file(descriptor):
            with suppress(FileNotFoundError):
                os.unlink(FRESH, dir_fd=descriptor)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(FRESH, flags, 0o755, dir_fd=descriptor), "wb") as file:
                os.fchmod(file.fileno(), 0o755)
                file.write(helper.read_bytes())
            os.replace(FRESH, HELPER, src_dir_fd=descriptor, dst_dir_fd=descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(HELPER, dir_fd=descriptor, follow_symlinks=False).st_mode)
    except OSError:
        return False
