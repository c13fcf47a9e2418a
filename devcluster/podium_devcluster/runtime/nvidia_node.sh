# Runs inside a node: a driver root as the driver container of the GPU Operator leaves it, over the fake driver, and
# NVIDIA's container toolkit with the runtime handler `nvidia`. It may run again after the number of GPUs has changed.
# usage: sh -s PROGRAMS DRIVER_VERSION
set -eu
programs=$1 version=$2
fake=/var/lib/podium-fake-driver root=/run/nvidia/driver
libraries=$root/usr/lib/x86_64-linux-gnu
mkdir -p "$root"
# Docker mounts /run of kind's nodes with noexec and nodev, so that no library could be loaded from there.
grep -q " $root " /proc/mounts || mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir -p "$libraries" "$root/dev" /etc/nvidia-container-runtime /run/cdi
for name in cuda nvidia-ml; do
    cp "$fake/lib/lib$name.so.1" "$libraries/lib$name.so.$version"
    ln -sfn "lib$name.so.$version" "$libraries/lib$name.so.1"
done
# Not in /dev: a node shares the machine's /dev, and everything on the machine would see the device nodes.
node() { [ -e "$root/dev/$1" ] || mknod -m 666 "$root/dev/$1" c "$2" "$3"; }
rm -f "$root"/dev/nvidia[0-9]*
for gpu in $("$fake/bin/podium-fake-gpud" show | sed -n 's/^\([0-9][0-9]*\) .*/\1/p'); do node "nvidia$gpu" 195 "$gpu"; done
node nvidiactl 195 255
node nvidia-uvm 510 0
node nvidia-uvm-tools 510 1
"$programs/nvidia-ctk" --quiet config --in-place --config-file=/etc/nvidia-container-runtime/config.toml \
    --set "nvidia-container-cli.root=$root" --set "nvidia-ctk.path=$programs/nvidia-ctk"
"$programs/nvidia-ctk" --quiet cdi generate --driver-root="$root" --device-name-strategy=uuid \
    --nvidia-cdi-hook-path="$programs/nvidia-cdi-hook" --output=/run/cdi/nvidia.yaml
"$programs/nvidia-ctk" --quiet runtime configure --runtime=containerd --config=/etc/containerd/config.toml \
    --nvidia-runtime-path="$programs/nvidia-container-runtime"
