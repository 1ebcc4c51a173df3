# held_clock.sh METHOD...: what the P-state register says while each method holds the clock, and while it does not.
# Writes "found LIMITS", "held METHOD STATE...", "left METHOD STATE...", "after METHOD LIMITS" and "told METHOD TIMES".
. /jobs/common.sh

limits() {
  cat $cpufreq/policy0/scaling_min_freq $cpufreq/policy0/scaling_max_freq
}

# The register at 40 moments of 30 ms, which do not keep step with the periods.
states() {
  for moment in $(seq 40); do
    program registers | tr -d '[],' | cut -d' ' -f1
    usleep 30000
  done
}

echo ondemand >$cpufreq/policy0/scaling_governor
echo 1000000 >$cpufreq/policy0/scaling_min_freq
echo 2200000 >$cpufreq/policy0/scaling_max_freq
echo "found" $(limits)
for method; do
  for key in held left; do
    [ $key = held ] && option= || option=--no-hold-clock
    emu run --method "$method" --speed 25% $option -- program busy 0 2>/tmp/words &
    emu=$!
    usleep 500000
    echo "$key $method" $(states)
    kill $emu
    wait $emu
    echo "after $method" $(limits)
    echo "told $method $(grep -c 'clock of CPU 0 is' /tmp/words)"
  done
done
