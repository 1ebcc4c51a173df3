# cpu_gov.sh WINDOW_MS SETTING...: the kernel's account of the frequencies while cpu-gov is at work on busy CPUs.
# SETTING is PERCENT,..., a speed for each CPU. Writes "clock SETTING HERTZ...", what a loop on each CPU perceived, and
# for each of them "spent SETTING CPU KHZ UNITS...", for how long each frequency was set. The first setting is "100": no
# emulation.
. /jobs/common.sh

cat >/tmp/window <<'JOB'
cd /sys/devices/system/cpu/cpufreq
echo "0-$(($(nproc) - 1)) 500000000 ${window_ms}000000" | emu probe >/tmp/clocks &
usleep 600000
for policy in policy*; do
  echo 1 >$policy/stats/reset
done
usleep $((window_ms - 200))000
for policy in policy*; do
  echo "spent $setting ${policy#policy} $(tr '\n' ' ' <$policy/stats/time_in_state)"
done
wait
echo "clock $setting" $(grep -o '"clock":[0-9]*' /tmp/clocks | cut -d: -f2)
JOB

export window_ms=$1 setting=100
shift
sh /tmp/window
for setting; do
  emu run --quiet --method cpu-gov --speed "$(per_cpu "$setting")" -- sh /tmp/window
done
