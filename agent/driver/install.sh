#!/bin/sh
# Entrypoint of the fake driver's image: installs the libraries where the agent's pod mounts them, then runs the daemon.
# Each file is written under a temporary name and renamed, so that processes that use the old library keep it intact.
set -eu
here=$(dirname "$(readlink -f "$0")")
dir=${FAKE_GPU_DIR:-/var/lib/podium-fake-driver}
mkdir -p "$dir/lib" "$dir/bin"
install_file() {
    cp "$here/$1" "$dir/$2/.$1.new"
    chmod 0755 "$dir/$2/.$1.new"
    mv -f "$dir/$2/.$1.new" "$dir/$2/$1"
}
install_file libnvidia-ml.so.1 lib
install_file libcuda.so.1 lib
install_file podium-fake-gpud bin # for `set` and `show` on the host
exec "$here/podium-fake-gpud" run
