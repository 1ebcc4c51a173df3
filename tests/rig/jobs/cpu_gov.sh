# cpu_gov.sh WINDOW_MS SETTING...: the kernel's account of the frequencies while cpu-gov is at work on busy CPUs.
# SETTING is PERCENT,..., a speed for each CPU. Writes "rate SETTING RATE...", what a loop on each CPU got done, and for
# each of them "spent SETTING CPU KHZ UNITS...", for how long each frequency was set. The first setting is "100": no
# emulation.
. /jobs/common.sh

cat >/tmp/window <<'JOB'
cd /sys/devices/system/cpu/cpufreq
for policy in policy*; do
  echo 1 >$policy/stats/reset
done
# Nothing else runs meanwhile.
for policy in policy*; do
  program rate 200 "$window_ms" 300 >/tmp/rate.$policy &
done
wait
for policy in policy*; do
  echo "spent $setting ${policy#policy} $(tr '\n' ' ' <$policy/stats/time_in_state)"
done
echo "rate $setting" $(cat /tmp/rate.*)
JOB

export window_ms=$1 setting=100
shift
sh /tmp/window
for setting; do
  emu run --quiet --method cpu-gov --speed "$(per_cpu "$setting")" -- sh /tmp/window
done
