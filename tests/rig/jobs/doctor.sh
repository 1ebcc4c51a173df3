# doctor.sh STATE,... ENDING,...: however a tuning ends, the machine is as it was. For each state in which the cpufreq
# policies may be found and each way of ending, "ended STATE ENDING STATUS ASLR GOVERNOR…": the exit status, and what was
# seen while it was at work on CPU 1, the governors of all policies among it; "left ..." for everything that is not as it
# was; "words ..." of emu.
. /jobs/common.sh

# What a tuning may change beside cpufreq.
others() {
  grep '' /proc/sys/kernel/randomize_va_space /proc/sys/vm/swappiness /proc/irq/*/smp_affinity_list \
    /sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/transparent_hugepage/defrag 2>/dev/null
}

is_tuned() {
  grep -q '^0$' /proc/sys/kernel/randomize_va_space
}

one() { # STATE ENDING
  state=$1 ending=$2
  find_policies "$state"
  { snapshot; others; } >/tmp/before
  rm -f /tmp/status
  (emu doctor tune --cpus 1 2>/tmp/words & echo $! >/tmp/emu.pid; wait $!; echo $? >/tmp/status) &
  wait_for is_tuned
  # The last knob is tuned a little later.
  usleep 300000
  emu=$(cat /tmp/emu.pid)
  seen="$(cat /proc/sys/kernel/randomize_va_space) $(cat $cpufreq/policy*/scaling_governor | tr '\n' ' ')"
  guardian=$(grep -l '^emu-guardian$' $(printf '/proc/%s/comm ' $(cat "/proc/$emu/task/$emu/children")) | cut -d/ -f3)
  case $ending in
    interrupt) kill -INT "$emu" ;;
    kill) kill -KILL "$emu" ;;
    kill-both) kill -KILL "$guardian" "$emu" ;;
  esac
  wait_for test -s /tmp/status
  wait_for is_gone "$guardian"
  if [ "$ending" = kill-both ]; then
    emu doctor reset >/dev/null 2>>/tmp/words || echo "left emu doctor reset: $(cat /tmp/words)"
  fi
  echo "ended $state $ending $(cat /tmp/status) $seen"
  { snapshot; others; } >/tmp/after
  diff /tmp/before /tmp/after | sed -n 's/^[-+][^-+]/left &/p'
  sed 's/^/words /' /tmp/words
}

# Makes the state folder.
emu doctor tune --quiet --knobs aslr --for 10ms
for ending in $(echo "$2" | tr , ' '); do
  for state in $(echo "$1" | tr , " "); do
    one "$state" "$ending"
  done
done
