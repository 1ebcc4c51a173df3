# endings.sh STATE,... ENDING,...: however an emulation ends, nothing of it may be left. For each way of ending, each method, and each state
# in which the cpufreq policies may be found, "ended STATE METHOD ENDING STATUS GROUPS RT_RUNTIME_US GOVERNORS": the exit
# status, and what was seen while it was at work; "left ..." for everything that is not as it was; "words ..." of emu.
. /jobs/common.sh

# Ends when the file is there for a program that is not killed, or after a while.
cat >/tmp/program <<'JOB'
echo $$ >/tmp/program.pid
for i in $(seq 2000); do
  [ ! -e /tmp/enough ] || exit 0
  usleep 5000
done
JOB

# Ends emu when its program runs; emu itself is in the foreground, where it can be interrupted.
end_it() { # ENDING
  wait_for test -s /tmp/program.pid
  usleep 100000
  emu=$(cat /tmp/emu.pid)
  cat $cpufreq/policy*/scaling_governor | sort -u >/tmp/governors
  find /sys/fs/cgroup -type d | grep -c "emu-$emu-" >/tmp/groups
  cat /proc/sys/kernel/sched_rt_runtime_us >/tmp/real_time
  guardian=$(guardian_of "$emu")
  echo "$guardian" >/tmp/guardian.pid
  case $1 in
    release) touch /tmp/enough ;;
    interrupt) kill -INT "$emu" ;;
    kill) kill -KILL "$emu" ;;
    kill-both) kill -KILL "$guardian" "$emu" ;;
  esac
}

one() { # STATE METHOD ENDING ARGUMENTS...
  state=$1 name=$2 ending=$3
  shift 3
  find_policies "$state"
  rm -f /tmp/enough /tmp/*.pid
  snapshot >/tmp/before
  end_it "$ending" &
  ender=$!
  sh -c 'echo $$ >/tmp/emu.pid; exec emu run --quiet "$@"' sh "$@" -- sh /tmp/program 2>/tmp/words
  status=$?
  wait $ender
  wait_for is_gone "$(cat /tmp/guardian.pid)"
  if [ "$ending" = kill-both ]; then
    emu restore >/dev/null 2>>/tmp/words || echo "left emu restore: $(cat /tmp/words)"
  fi
  # A program that emu did not outlive goes on, and nothing holds it.
  touch /tmp/enough
  wait_for is_gone "$(cat /tmp/program.pid)"
  echo "ended $state $name $ending $status "$(cat /tmp/groups /tmp/real_time /tmp/governors)
  snapshot >/tmp/after
  diff /tmp/before /tmp/after | sed -n 's/^[-+][^-+]/left &/p'
  sed 's/^/words /' /tmp/words
}

mkdir -p /run/emu
# The real-time limit keeps more for the tasks than the fair server of newer kernels: 7 % are out of reach until it is lifted.
echo 900000 > /proc/sys/kernel/sched_rt_runtime_us
emu run --quiet --method cpu-freeze --speed 50% -- true
emu run --quiet --method cpu-lim --speed 50% -- true
for ending in $(echo "$2" | tr , ' '); do
  for state in $(echo "$1" | tr , " "); do
    one "$state" cpu-freq $ending --method cpu-freq --speed 60%
    one "$state" cpu-gov $ending --method cpu-gov --speed 60%
    one "$state" cpu-gov-frozen $ending --method cpu-gov --speed 20%
  done
  one userspace cpu-hogs $ending --method cpu-hogs --speed 7% --lift-rt-limit
  one userspace fracas $ending --method fracas --speed 20%
  one userspace cpu-freeze $ending --method cpu-freeze --speed 20%
  one userspace cpu-lim $ending --method cpu-lim --speed 20%
done
