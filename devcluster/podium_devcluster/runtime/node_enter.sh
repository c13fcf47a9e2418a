#!/bin/bash
# Runs as pid 1 of a node's mount, pid, uts and ipc namespaces: builds the node's root and becomes its init.
# All mounts are in the private mount namespace, so they disappear with the node's last process.
# usage: node_enter.sh NODE STATE LOWER BINARIES IMAGES PKI LOG SHARED
set -euo pipefail
node=$1 state=$2 lower=$3 binaries=$4 images=$5 pki=$6 log=$7 shared=$8
root=$state/merged
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$state/config:$lower,upperdir=$state/upper,workdir=$state/work" "$root"
mkdir -p "$root"/{var/lib/containerd,var/lib/kubelet,var/log,opt/k8s,images,pki,shared,old,proc,sys,dev,run,tmp}
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$state/containerd" "$root/var/lib/containerd"
mount --bind "$state/kubelet" "$root/var/lib/kubelet"
mount --bind "$log" "$root/var/log"
mount --bind -o ro "$binaries" "$root/opt/k8s"
mount --bind -o ro "$images" "$root/images"
mount --bind -o ro "$pki" "$root/pki"
mount --bind "$shared" "$root/shared"    # the same folder on every node, as network storage is
hostname "$node"
cd "$root"
pivot_root . old    # requires a private new root; it is made shared afterwards
# The init only reaps: bash waits for all children, also for orphaned ones.
exec /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root /bin/bash -c '
    cd /; umount -l /old; rmdir /old; mount --make-rshared /; ip link show eth0 >/dev/null
    touch /run/node-is-set-up; trap : TERM INT HUP
    while :; do sleep 2147483 & wait $!; done'
