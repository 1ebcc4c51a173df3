# others.sh LOAD...: what a busy program at 50 % of what others leave uses beside a task outside its zone, by the kernel's own account. LOAD is
# PRIORITY:STEPS:IDLE_MS; writes "used LOAD SHARE_OF_THE_LOAD SHARE_OF_THE_PROGRAM".
. /jobs/common.sh

for run; do
  program load $(echo "$run" | tr : ' ') &
  load=$!
  rm -f /tmp/program.pid
  emu run --quiet --method cpu-hogs --exclude-background --speed 50% -- sh -c 'echo $$ >/tmp/program.pid; exec program rate 200 60000 300' >/dev/null &
  emu=$!
  wait_for [ -s /tmp/program.pid ]
  both="/proc/$load /proc/$(cat /tmp/program.pid)"
  # What others use is known after a second or two.
  usleep 2500000
  echo "used $run $(program used 2500000 $both)"
  kill -KILL "$(cat /tmp/program.pid)" $load
  wait $emu
done
exit 0 # and not the last program's, which was killed
