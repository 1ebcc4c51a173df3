# What several jobs use.

export NO_COLOR=1
cpufreq=/sys/devices/system/cpu/cpufreq

# per_cpu PERCENT,...: a speed for each CPU as `emu run --speed` takes it.
per_cpu() {
  echo "$1" | tr , '\n' | awk '{ printf "%s%d=%s%%", (NR > 1 ? "," : ""), NR - 1, $1 }'
}

# All that emu may change. The measurements among the files of cpufreq change by themselves.
snapshot() {
  find $cpufreq -type f ! -path '*/stats/*' ! -name '*cur_freq' | sort >/tmp/files
  # Some cannot be read under some governors.
  grep '' $(cat /tmp/files) /proc/sys/kernel/sched_rt_*_us 2>/dev/null
  # Under these governors the frequency is what was set, and no measurement.
  for policy in $cpufreq/policy*; do
    case $(cat "$policy/scaling_governor") in
      userspace | performance | powersave) echo "$policy: $(cat "$policy/scaling_cur_freq")" ;;
    esac
  done
  find /sys/fs/cgroup -type d | sort
  find /run/emu -type f ! -name '*-costs.json'
  sed -n 's/^[0-9]* \((.*)\) [Tt] .*/stopped: \1/p' /proc/[0-9]*/stat 2>/dev/null
}

# Sets up the state in which the cpufreq policies are found.
find_policies() { # STATE
  for policy in $cpufreq/policy*; do
    echo 800000 >"$policy/scaling_min_freq"
    echo 2600000 >"$policy/scaling_max_freq"
  done
  case $1 in
    userspace)
      for policy in $cpufreq/policy*; do
        echo userspace >"$policy/scaling_governor"
        echo 1400000 >"$policy/scaling_setspeed"
        echo 2200000 >"$policy/scaling_max_freq"
        echo 1000000 >"$policy/scaling_min_freq"
      done
      echo 1800000 >$cpufreq/policy0/scaling_setspeed ;;
    ondemand | conservative)
      for policy in $cpufreq/policy*; do
        echo "$1" >"$policy/scaling_governor"
      done
      echo 70 >"$cpufreq/$1/up_threshold" ;;
    schedutil)
      for policy in $cpufreq/policy*; do
        echo schedutil >"$policy/scaling_governor"
        echo 1800000 >"$policy/scaling_max_freq"
      done
      echo 5000 >$cpufreq/schedutil/rate_limit_us ;;
    mixed)
      echo performance >$cpufreq/policy0/scaling_governor
      echo conservative >$cpufreq/policy1/scaling_governor ;;
  esac
}

wait_for() { # COMMAND...: at most for some seconds
  for moment in $(seq 200); do
    ! "$@" || return 0
    usleep 20000
  done
  echo "left waiting in vain for: $*"
}

# Waits until the job's program has written its process ID; gives up, and says what emu does, when that takes too long or
# emu has ended.
await() { # NAME
  for _ in $(seq 1000); do
    [ ! -s /tmp/program.pid ] || return 0
    kill -0 $emu || break
    usleep 20000
  done
  echo "$1: the program does not run; the threads of emu:"
  for task in /proc/$emu/task/*; do
    echo "$task $(cat "$task/comm") $(cat "$task/wchan") $(tr '\n' ' ' <"$task/stack")"
  done
  ps
  exit 1
}

# Takes CPU 2 offline, or back online.
turn() { # 0 or 1
  echo "$1" >/sys/devices/system/cpu/cpu2/online
}

is_gone() {
  [ ! -e "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status"
}

# The process that undoes what this emu changes, should it be killed.
guardian_of() { # EMU
  grep -l '^emu-guardian$' $(printf '/proc/%s/comm ' $(cat "/proc/$1/task/$1/children")) | cut -d/ -f3
}
