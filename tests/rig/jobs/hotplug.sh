# hotplug.sh METHOD SETTLE_US WINDOW_US: what two busy programs use at 40 % of CPUs 1 and 2 when CPU 2 goes offline and comes
# back, by the kernel's own account: "used WHEN SHARE SHARE" with `both` CPUs, with `one`, when CPU 2 is
# `back`, and when it has been away for a `moment`; and at the end "cpuset GROUP CPUS" of the zone's groups.
. /jobs/common.sh

method=$1 settle_us=$2 window_us=$3

cat >/tmp/program <<'JOB'
program rate 100 600000 0 &
echo $! >/tmp/other.pid
echo $$ >/tmp/program.pid
exec program rate 100 600000 0
JOB

watch() { # WHEN
  usleep "$settle_us"
  echo "used $1 $(program used "$window_us" $both)"
}

emu run --quiet --method "$method" --cpus 1-2 --speed 40% -- sh /tmp/program >/dev/null &
emu=$!
await "$method"
both="/proc/$(cat /tmp/program.pid) /proc/$(cat /tmp/other.pid)"
watch both
turn 0
watch one
turn 1
watch back
turn 0
turn 1
watch moment
for file in $(find /sys/fs/cgroup -path '*/emu-*' -name cpuset.cpus.effective -o -path '*/emu-*' -name cpuset.effective_cpus); do
  group=${file%/*}
  echo "cpuset ${group##*/} $(cat "$file")"
done
kill -KILL "$(cat /tmp/program.pid)" "$(cat /tmp/other.pid)"
wait $emu
exit 0 # and not the program's, which was killed
