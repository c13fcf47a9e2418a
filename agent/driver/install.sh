#!/bin/sh
# Entrypoint of the fake driver's image: puts the libraries where the agent's pod mounts them, then is the daemon.
# Each file is written aside and renamed, so that a library that is in use stays whole for those who have it open.
set -eu
here=$(dirname "$(readlink -f "$0")")
dir=${FAKE_GPU_DIR:-/var/lib/podium-fake-driver}
mkdir -p "$dir/lib" "$dir/bin"
place() {
    cp "$here/$1" "$dir/$2/.$1.new"
    chmod 0755 "$dir/$2/.$1.new"
    mv -f "$dir/$2/.$1.new" "$dir/$2/$1"
}
place libnvidia-ml.so.1 lib
place libcuda.so.1 lib
place podium-fake-gpud bin # for `set` and `show` on the host
exec "$here/podium-fake-gpud" run
