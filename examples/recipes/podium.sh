# POSIX shell: the checkpoint contract with plain files, for a program that a shell script starts. Source it:
#
#     . ./podium.sh
#     step=0; state=$(podium_load) && step=$(podium_step)
#     while [ $step -lt 100 ] && ! podium_stopping; do
#         train --from "$state" ...; step=$((step + 1))
#         if podium_wanted || [ $((step % 10)) = 0 ]; then podium_save $step write_state; fi
#     done
#
# Without Podium nothing is saved, unless PODIUM_CHECKPOINT names a folder.

# The shell runs the trap when the present command has ended; the next call then returns yes. A signal that arrives just
# after podium_wanted returned no is reported one call later, so that the script saves before it ends.
podium_stop=
podium_declined=
trap 'podium_stop=1' TERM

podium_stopping() {
    podium_postponed=$podium_declined podium_declined=
    [ -n "$podium_stop" ] && [ -z "$podium_postponed" ]
}

# Returns yes if a checkpoint is requested now.
podium_wanted() {
    podium_declined=
    if [ -n "$podium_stop" ]; then return 0; fi
    [ -n "${PODIUM_CHECKPOINT:-}" ] || return
    if [ -e "$PODIUM_CHECKPOINT/podium-checkpoint-request" ]; then return 0; fi
    podium_declined=1
    return 1
}

# podium_save STEP COMMAND...: runs COMMAND with an empty folder as its last argument; it writes the state there.
podium_save() {
    podium_declined=
    [ -n "${PODIUM_CHECKPOINT:-}" ] || return 0
    podium_name=step-$1-attempt-${PODIUM_ATTEMPT:-0}
    podium_line="{\"step\": $1, \"path\": \"$podium_name\", \"onRequest\": true}"
    shift
    mkdir -p "$PODIUM_CHECKPOINT" || return
    if [ "$podium_line" != "$(cat "$PODIUM_CHECKPOINT/podium-checkpoint.json" 2>/dev/null)" ]; then
        rm -rf "$PODIUM_CHECKPOINT/$podium_name" "$PODIUM_CHECKPOINT/new"
        mkdir "$PODIUM_CHECKPOINT/new" && "$@" "$PODIUM_CHECKPOINT/new" &&
            find "$PODIUM_CHECKPOINT/new" -exec sync {} + &&
            mv "$PODIUM_CHECKPOINT/new" "$PODIUM_CHECKPOINT/$podium_name" && sync "$PODIUM_CHECKPOINT" || return
    fi
    printf '%s\n' "$podium_line" >"$PODIUM_CHECKPOINT/podium-checkpoint.json.new" &&
        sync "$PODIUM_CHECKPOINT/podium-checkpoint.json.new" || return
    rm -f "$PODIUM_CHECKPOINT/podium-checkpoint-request" # before the marker: a later request is for a later checkpoint
    mv "$PODIUM_CHECKPOINT/podium-checkpoint.json.new" "$PODIUM_CHECKPOINT/podium-checkpoint.json" &&
        sync "$PODIUM_CHECKPOINT" || return
    for podium_old in "$PODIUM_CHECKPOINT"/step-*; do
        [ "$podium_old" = "$PODIUM_CHECKPOINT/$podium_name" ] || rm -rf "$podium_old"
    done
}

# Prints the folder of the checkpoint to resume from; fails if there is none.
podium_load() {
    podium_name=$(sed -n 's/.*"path": *"\([^"]*\)".*/\1/p' "${PODIUM_CHECKPOINT:-/nowhere}/podium-checkpoint.json" 2>/dev/null)
    [ -n "$podium_name" ] && [ -d "$PODIUM_CHECKPOINT/$podium_name" ] && printf '%s\n' "$PODIUM_CHECKPOINT/$podium_name"
}

# Prints the step of that checkpoint.
podium_step() { sed -n 's/.*"step": *\([0-9]*\).*/\1/p' "$PODIUM_CHECKPOINT/podium-checkpoint.json"; }
