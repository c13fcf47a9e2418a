# A running sum in shell: the value of a step depends on the previous one.
. "$RECIPES/podium.sh"
write_state() { echo "$value" >"$1/value"; }
step=0 value=1
if state=$(podium_load); then step=$(podium_step) value=$(cat "$state/value"); fi
while [ "$step" -lt 60 ]; do
    sleep 0.02
    step=$((step + 1)) value=$(((value * 31 + step) % 65521))
    echo "{\"step\": $step, \"loss\": $value}"
    if podium_wanted || [ $((step % 10)) = 0 ]; then podium_save $step write_state; fi
    if podium_stopping; then exit 143; fi
done
