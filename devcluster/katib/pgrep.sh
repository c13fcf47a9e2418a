#!/bin/sh
# pgrep -P PID for Katib's metrics collector, which ends a trial by it: Debian's busybox lacks this applet.
[ "$1" = -P ] || exit 2
status=1
for stat in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null <"$stat" || continue
    set -- "$1" "$2" ${line##*) } # state, parent, ...: the name in parentheses may contain anything
    if [ "$4" = "$2" ]; then
        echo "${line%% *}"
        status=0
    fi
done
exit $status
