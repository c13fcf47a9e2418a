"""Evidence in the virtual node that is not Podium's: cgroup files, the kubelet's log, processes of units."""

from __future__ import annotations

from dataclasses import dataclass

from podium_devcluster.vm.machine import Machine

SLOTS = "podium.dev/gpu"


@dataclass(frozen=True, slots=True)
class Freezer:
    """A cgroup in the guest: whether it is to be frozen, whether the kernel has frozen it, and its processes."""

    path: str
    requested: bool
    frozen: bool
    processes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GuestEvidence:
    """What the guest's own programs show."""

    machine: Machine

    def freezers(self, container: str) -> list[Freezer]:
        """Return the cgroups of a container, inner ones first."""
        script = (
            f"for d in $(find /sys/fs/cgroup -depth -type d -path '*{container}*'); do "
            "echo $d $(cat $d/cgroup.freeze) $(grep -c 'frozen 1' $d/cgroup.events) $(cat $d/cgroup.procs); done"
        )
        return freezers_of(self.machine.shell(script))

    def registrations(self) -> int:
        """Return how often the kubelet has accepted Podium's device plugin for slots."""
        pattern = f'Got registration request from device plugin.*"{SLOTS}"'
        return int(self.machine.shell(f"grep -c '{pattern}' /var/log/kubelet.log || true"))

    def denials(self) -> int:
        """Return how often the kubelet has denied the admission of a pod."""
        return int(self.machine.shell("grep -c 'Pod admission denied' /var/log/kubelet.log || true"))

    def main_process(self, unit: str) -> int:
        """Return the id of a unit's main process; 0 if it has none."""
        return int(self.machine.shell(f"systemctl show --property=MainPID --value {unit}"))

    def containerd_answers(self) -> bool:
        """Return whether containerd answers."""
        script = "ctr --connect-timeout=2s version >/dev/null 2>&1 && echo yes || true"
        return self.machine.shell(script).strip() == "yes"


def freezers_of(listing: str) -> list[Freezer]:
    """Return the cgroups of a listing. Pure.

    A line has the path, whether the cgroup is to be frozen, whether it is frozen, and the ids of its processes.
    """
    found = []
    for line in listing.splitlines():
        path, requested, frozen, *processes = line.split()
        found.append(Freezer(path, requested == "1", frozen == "1", tuple(map(int, processes))))
    return found
