# cpu_freq.sh SETTING...: what the kernel and the registers say while cpu-freq is at work.
# SETTING is ROUND:PERCENT,..., a speed for each CPU; writes "set ROUND PERCENT,...", "frequencies KHZ..." and
# "registers STATE...".
. /jobs/common.sh

echo "table $(cat $cpufreq/policy0/scaling_available_frequencies)"
for setting; do
  round=${setting%%:*} percents=${setting#*:}
  echo "set $round $percents"
  emu run --quiet --method cpu-freq --round "$round" --speed "$(per_cpu "$percents")" -- sh -c '
    echo "frequencies" $(cat '$cpufreq'/policy*/scaling_cur_freq)
    echo "registers" $(program registers | tr -d "[],")'
done
