"""The files of the guest's root file system beside Debian's own: units, settings, and the init of the initramfs. Pure.

The guest has no udev: an emulated processor would need seconds for it. So no unit may wait for a device unit, and the
initramfs mounts both disks.
"""

from __future__ import annotations

CONFIG_DISK = "/dev/vdc"  # a tar file with what only this machine has

GUEST_AGENT = """[Unit]
DefaultDependencies=no
After=systemd-modules-load.service local-fs.target
[Service]
ExecStart=/bin/sh -c 'exec /usr/sbin/qemu-ga --method=virtio-serial --path=$$(echo /dev/vport*p1) --statedir=/run'
Restart=always
RestartSec=1
OOMScoreAdjust=-1000
[Install]
WantedBy=sysinit.target
"""
CONFIG = f"""[Unit]
DefaultDependencies=no
RequiresMountsFor=/
After=systemd-remount-fs.service local-fs.target
Before=node-net.service containerd.service kubelet.service kube-proxy.service sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/tar -C / --no-same-owner -xf {CONFIG_DISK}
[Install]
WantedBy=sysinit.target
"""
NETWORK = """[Unit]
After=node-config.service
Before=containerd.service kubelet.service kube-proxy.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/bash /etc/node/net.sh
[Install]
WantedBy=multi-user.target
"""


def _service(after: str, command: str, log: str) -> str:
    return f"""[Unit]
After={after}
[Service]
EnvironmentFile=/etc/node/env
ExecStart={command}
Restart=always
RestartSec=1
StandardOutput=append:/var/log/{log}.log
StandardError=append:/var/log/{log}.log
[Install]
WantedBy=multi-user.target
"""


UNITS = {
    "guest-agent": GUEST_AGENT,
    "node-config": CONFIG,
    "node-net": NETWORK,
    "kubelet": _service(
        "containerd.service node-net.service", "/opt/k8s/kubelet --config=/etc/kubelet.json $KUBELET_ARGS", "kubelet"
    ),
    "kube-proxy": _service("node-net.service", "/opt/k8s/kube-proxy --config=/etc/kube-proxy.json", "kube-proxy"),
}
CONTAINERD = """[Service]
ExecStartPre=
StandardOutput=append:/var/log/containerd.log
StandardError=append:/var/log/containerd.log
"""
_MASKED_SERVICES = (
    "qemu-guest-agent", "systemd-udevd", "systemd-udev-trigger", "e2scrub_reap", "systemd-random-seed",
    "systemd-resolved", "systemd-networkd", "getty@tty1", "systemd-timesyncd", "systemd-logind",
    "systemd-hwdb-update", "systemd-journal-catalog-update", "systemd-update-done", "kmod-static-nodes",
    "serial-getty@ttyS0", "systemd-binfmt", "binfmt-support",
)  # fmt: skip
MASKED = (
    *(f"{name}.service" for name in _MASKED_SERVICES),
    "systemd-udevd-control.socket", "systemd-udevd-kernel.socket", "systemd-udevd-varlink.socket",
    "systemd-networkd.socket", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer",
    "e2scrub_all.timer", "fstrim.timer",
)  # fmt: skip
SETTINGS = {
    "etc/fstab": "",
    "etc/modules-load.d/node.conf": "overlay\nbr_netfilter\nveth\nbridge\nvirtio_net\nxt_conntrack\n",
    "etc/sysctl.d/50-node.conf": "net.ipv4.ip_forward=1\nnet.bridge.bridge-nf-call-iptables=1\n",
    "etc/systemd/journald.conf.d/node.conf": "[Journal]\nStorage=volatile\n",
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "etc/systemd/system/containerd.service.d/log.conf": CONTAINERD,
}
FOLDERS = ("var/lib/containerd", "var/lib/kubelet", "opt/k8s", "pki")

TEST_BOOT, TEST_BOOT_ENDED = "podium.testboot", "podium: the kernel has started"
"""With this word on the kernel's command line, the initramfs prints the sentence and switches the machine off."""
INIT = f"""#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /new
$b mount -t devtmpfs d /dev; $b mount -t proc p /proc; $b mount -t sysfs s /sys
if $b grep -q {TEST_BOOT} /proc/cmdline; then $b echo {TEST_BOOT_ENDED} > /dev/console; exec $b poweroff -f; fi
for m in /m/*.ko; do $b insmod $m; done
n=0; until $b mount -t ext4 -o rw,noatime /dev/vda /new 2>/dev/null || [ $n -gt 100 ]; do
  n=$((n+1)); $b usleep 50000
done
$b mount -t ext4 -o rw,noatime /dev/vdb /new/var/lib/containerd
$b umount /proc /sys; $b mount --move /dev /new/dev
exec $b switch_root /new /lib/systemd/systemd
"""


def wanted_by(unit: str) -> str:
    """Return the target that starts a unit."""
    return unit.rpartition("WantedBy=")[2].strip()
