# costs.sh: what a stop costs is measured and kept by one emu, and then said to be a quarter of all that the tasks get, so that the
# next emu gives them too much: "measured kept", "wrong dropped" or what is so instead, and "said" with the words of that emu.
. /jobs/common.sh

file=/run/emu/stop-costs.json

busy() {
  emu run --speed 10% --period 20ms --method cpu-freeze --cpus 0 -- timeout 3 program busy 0
}

is_there() {
  if [ -e $file ]; then echo "$1 kept"; else echo "$1 dropped"; fi
}

busy 2>/dev/null
is_there measured
# 480 µs of the 2 ms of each period.
sed -i 's/"base":[0-9.]*/"base":480000.0/g; s/"tick":[0-9.]*/"tick":0.0/g' $file
busy 2>/tmp/said
is_there wrong
sed 's/^/said /' /tmp/said
