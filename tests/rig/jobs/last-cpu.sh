# last-cpu.sh: what a busy program uses at 40 % of CPU 2 by cpu-hogs, which goes offline and comes back, by the kernel's own
# account: "used WHEN SHARE" `before`, `without` and `after`, and "used both SHARE SHARE" with another that was started without
# the CPU; and "words TEXT" that emu says in all.
. /jobs/common.sh

cat >/tmp/program <<'JOB'
program rate 100 600000 0 &
echo $! >/tmp/first.pid
echo $$ >/tmp/program.pid
while [ ! -e /tmp/start ]; do usleep 20000; done
program rate 100 600000 0 &
echo $! >/tmp/second.pid
wait
JOB

watch() { # WHEN FOLDER_IN_PROC...
  when=$1
  shift
  usleep 600000
  echo "used $when $(program used 500000 "$@")"
}

emu run --method cpu-hogs --cpus 2 --speed 40% -- sh /tmp/program >/dev/null 2>/tmp/words &
emu=$!
await cpu-hogs
first=/proc/$(cat /tmp/first.pid)
watch before "$first"
turn 0
watch without "$first"
touch /tmp/start
wait_for [ -s /tmp/second.pid ]
second=/proc/$(cat /tmp/second.pid)
kill -STOP "${second#/proc/}"
turn 1
watch after "$first"
kill -CONT "${second#/proc/}"
watch both "$first" "$second"
kill -KILL "$(cat /tmp/program.pid)" "${first#/proc/}" "${second#/proc/}"
wait $emu
echo "words $(tr '\n' ' ' </tmp/words)"
exit 0 # and not the program's, which was killed
