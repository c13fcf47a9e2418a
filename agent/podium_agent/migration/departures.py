"""The agent's task that makes live trials images when the operator asks for it, and removes images that are done with.

Asked by the annotation `podium.dev/migrate` on a trial's pod; begun when the trial is suspended; the answer goes into
the trial's status with the last lines of its log (`book.departure`). The annotation taken away is the end of it: what
is under way is undone, the image removed, and the trial goes on here when its order says so. What an agent that died
left half-done is done again from its beginning: the container stands as it was found then.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from podium_agent.migration import archive
from podium_agent.migration.artifacts import Traces
from podium_agent.migration.checkpointing import Tools, leave, pod_of
from podium_agent.migration.garbage_collection import Sweeping, remove
from podium_agent.migration.kubelet import Container
from podium_agent.migration.refusal import MoveError
from podium_agent.migration.settings import MoveSettings
from podium_agent.observe.cgroups import Freezer
from podium_agent.observe.pod_records import PodRecord
from podium_agent.observe.pods import TrialPod
from podium_agent.report.trial_record import TrialRecord
from podium_cluster.client import Api, ApiError
from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.schema.gpunode import TrialState
from podium_core.schema.trial import ContainerCheckpoint

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.5
AGAIN_SECONDS = 10.0  # after the API server or the registry was away
SWEEP_SECONDS = 10.0


class Departures:
    """`pods`: those of this node, as the watch has them; `record_of`, `book_of`: by a pod's uid."""

    def __init__(
        self,
        settings: MoveSettings,
        api: Api,
        tools: Tools,
        pods: Callable[[], Iterable[TrialPod]],
        record_of: Callable[[str], PodRecord | None],
        trial_record_of: Callable[[str], TrialRecord | None],
    ) -> None:
        self._settings, self._api, self._tools = settings, api, tools
        self._pods, self._record_of, self._trial_record_of = pods, record_of, trial_record_of
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        self._swept: set[str] = set()
        self._late: dict[str, float] = {}  # until when an archive may come that nobody waits for any more
        self._removed: dict[str, str] = {}  # by pod, its image
        self._looked = 0.0
        self._traces = Traces(settings.traces_dir)
        leaves = self._leaving.__contains__
        self._sweeping = Sweeping(settings, api, self._traces, self._here, leaves, trial_record_of, self._makes)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_every(LOOK_SECONDS, lambda: self.look(time.monotonic())))
                both.create_task(_every(SWEEP_SECONDS, lambda: self._sweeping.look(time.time())))
        finally:
            await self.end()

    async def end(self) -> None:
        """Undoes what is under way."""
        for task in self._leaving.values():
            if not task.cancelling():
                task.cancel()
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)

    async def look(self, now: float) -> None:
        self._looked = now
        there = {pod.uid: pod for pod in self._pods()}
        self._forget(there.keys())
        for uid, task in list(self._leaving.items()):
            asked = uid in there and there[uid].carry and there[uid].deadline is None
            if not asked and not task.cancelling():  # once: what it undoes takes longer than a look
                task.cancel()
            if task.done():
                del self._leaving[uid]
        for uid, pod in there.items():
            trial_record = self._trial_record_of(uid)
            self._note(pod, trial_record)
            if now < self._not_before.get(uid, 0.0) or uid in self._leaving:
                continue
            if pod.carry and trial_record is not None and _may_leave(pod, trial_record):
                self._leaving[uid] = asyncio.get_running_loop().create_task(self._leave(pod, trial_record, now))
            elif not pod.carry and trial_record is not None:
                await self._stays(pod, trial_record, now)
            if pod.carried and _needs_no_image(pod):
                await self._remove(pod, pod.image, now)

    def _note(self, pod: TrialPod, trial_record: TrialRecord | None) -> None:
        """Whether all that it did is in its image. Once it works again (`podium thaw`) that is so no more: it is taken
        back, and the trial stays. The operator has gone further if its pod is told to go."""
        record = self._record_of(pod.uid)
        if trial_record is None or trial_record.ledger is None or record is None:
            return
        departure = trial_record.container_checkpoint
        works = trial_record.state in (TrialState.RESUMING, TrialState.RUNNING) and pod.deadline is None
        if pod.carry and departure is not None and departure.image and works:
            text = "It was let work again after its image was made: it goes on here."
            log.warning("%s: %s", pod.name, text)
            departure = ContainerCheckpoint(pod_uid=pod.uid, code="TrialResumed", message=text)
            trial_record.set_container_checkpoint(departure)
        record.image_complete = departure is not None and bool(departure.image)

    async def _leave(self, pod: TrialPod, trial_record: TrialRecord, now: float) -> None:
        self._late[pod.uid] = now + 2 * self._settings.move_seconds
        try:
            answer = await self._answer(pod)
        except ApiError as error:
            log.warning("%s does not leave yet: %s", pod.name, error)
            self._not_before[pod.uid] = self._looked + AGAIN_SECONDS  # it may have taken minutes
            return
        except MoveError as refused:
            answer = ContainerCheckpoint(pod_uid=pod.uid, code=refused.code, message=refused.message)
        except Exception as error:  # it has to be answered, or the trial stands still until the operator gives up
            log.exception("%s does not leave", pod.name)
            answer = ContainerCheckpoint(pod_uid=pod.uid, code="Crashed", message=repr(error))
        said = answer.image or f"{answer.code}: {answer.message}"
        log.info("%s is to be carried to %s: %s", pod.name, pod.carry, said)
        if any(one.uid == pod.uid and one.deadline is not None for one in self._pods()):
            return  # it may be at work by now, to save: an image of it is out of date
        trial_record.set_container_checkpoint(answer)
        self._note(pod, trial_record)

    async def _answer(self, pod: TrialPod) -> ContainerCheckpoint:
        if CONTAINER_CHECKPOINT not in pod.methods:
            raise MoveError(
                "MethodNotEnabled", f"the job of {pod.name} does not name {CONTAINER_CHECKPOINT} in suspension.methods"
            )
        record = self._record_of(pod.uid)
        found = None if record is None else record.containers.get(pod.main)
        if found is None:
            raise MoveError("ContainerNotRunning", f"the first container of {pod.name} does not run here")
        container = _place(pod)
        await self._stand_still(found.freezer)
        seen = await pod_of(self._api, container)
        await asyncio.to_thread(self._traces.begin, pod)
        noted = functools.partial(self._traces.pushes, pod.uid)
        departed, arrival = await leave(
            self._settings, self._api, self._tools, container, found.freezer, seen, pod.carry, noted
        )
        arrives = "" if arrival is None else arrival.model_dump_json()
        return ContainerCheckpoint(pod_uid=pod.uid, image=departed.reference, gpu_state=arrives)

    async def _stand_still(self, freezer: Freezer) -> None:
        """An agent before this one died over it: thawed for the checkpoint, it waits at its next CUDA call."""
        name = freezer.path.name
        if self._tools.parked.whole(name).leaving:
            done = await self._tools.freeze.suspend((freezer,))
            if not done.ok:
                raise MoveError(done.code, done.message)
            self._tools.parked.leave(name, 0.0)

    async def _stays(self, pod: TrialPod, trial_record: TrialRecord, now: float) -> None:
        """It was not asked, or is so no more."""
        late = now < self._late.get(pod.uid, 0.0)  # the runtime writes on when the kubelet is asked no more
        if CONTAINER_CHECKPOINT in pod.methods and (late or pod.uid not in self._swept):
            self._swept.add(pod.uid)  # an agent before this one may have been killed over it
            await asyncio.to_thread(archive.sweep, self._settings.checkpoints_dir, _place(pod))
        departure = trial_record.container_checkpoint
        if departure is not None and (not departure.image or await self._remove(pod, departure.image, now)):
            trial_record.set_container_checkpoint(None)

    async def _remove(self, pod: TrialPod, image: str, now: float) -> bool:
        if self._removed.get(pod.uid) == image:
            return True
        try:
            await remove(self._settings, image, pod.key.namespace)
        except MoveError as error:
            log.warning("image %s is still in the registry: %s", image, error)
            self._not_before[pod.uid] = now + AGAIN_SECONDS
            return False
        self._removed[pod.uid] = image
        return True

    def _here(self, pod_uid: str) -> bool:
        return any(pod.uid == pod_uid for pod in self._pods())

    def _makes(self, place: Container) -> bool:
        return any(pod.uid in self._leaving and _place(pod) == place for pod in self._pods())

    def _forget(self, there: Iterable[str]) -> None:
        kept = frozenset(there)
        self._swept &= kept
        self._late = {uid: until for uid, until in self._late.items() if uid in kept}
        self._not_before = {uid: at for uid, at in self._not_before.items() if uid in kept}
        self._removed = {uid: image for uid, image in self._removed.items() if uid in kept}


async def _every(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await act()
        except Exception:  # whatever it is: it must not end the agent, which holds all trials of the node
            log.exception("who is to be carried, or what of it is left, is looked at again")
        await asyncio.sleep(seconds)


def _place(pod: TrialPod) -> Container:
    return Container(pod.key.namespace, pod.name, pod.containers[0])


def _needs_no_image(pod: TrialPod) -> bool:
    """Its node has what it needs of it by now, or never will. Of one that its kubelet rejected another pod needs it."""
    return pod.main in pod.running or (bool(pod.main) if pod.ended else pod.deadline is not None)


def _may_leave(pod: TrialPod, trial_record: TrialRecord) -> bool:
    """`account`: what the status says of it is known, an answer among it."""
    asked = trial_record.ledger is not None and trial_record.container_checkpoint is None
    return asked and trial_record.state is TrialState.SUSPENDED and pod.deadline is None and not pod.ended
