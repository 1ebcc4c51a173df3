# What several jobs use.

export NO_COLOR=1
cpufreq=/sys/devices/system/cpu/cpufreq

# per_cpu PERCENT,...: a speed for each CPU as `emu run --speed` takes it.
per_cpu() {
  echo "$1" | tr , '\n' | awk '{ printf "%s%d=%s%%", (NR > 1 ? "," : ""), NR - 1, $1 }'
}
