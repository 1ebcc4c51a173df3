# stopped.sh: what a busy program uses of CPU 1 at 40 % by cpu-hogs after emu was stopped for a while, at three moments of its
# period, by the kernel's own account: "used SHARE".
. /jobs/common.sh

emu run --quiet --method cpu-hogs --cpus 1 --speed 40% -- sh -c 'echo $$ >/tmp/program.pid; exec program rate 100 600000 0' >/dev/null &
emu=$!
await cpu-hogs
program=$(cat /tmp/program.pid)
for rest_us in 200000 203000 206000; do
  usleep $rest_us
  kill -STOP $emu
  usleep 500000
  kill -CONT $emu
  usleep 100000
  echo "used $(program used 500000 "/proc/$program")"
done
kill -KILL "$program"
wait $emu
exit 0 # and not the program's, which was killed
