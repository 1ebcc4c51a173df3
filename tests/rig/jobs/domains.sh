# domains.sh: zones that hold whole and half frequency domains. Writes a line for each: "ended NAME STATUS FREQUENCIES...",
# where the frequencies are those of policies 0 and 2 that the program saw.
. /jobs/common.sh

# zone NAME ARGUMENTS...
zone() {
  name=$1
  shift
  seen=$(emu run --quiet "$@" -- sh -c "echo \$(cat $cpufreq/policy*/scaling_cur_freq)" 2>/tmp/words)
  echo "ended $name $? $seen"
  sed "s/^/words $name /" /tmp/words
}

# A frequency to come from, the same for all.
for policy in $cpufreq/policy*; do
  echo userspace >$policy/scaling_governor
  echo 2600000 >$policy/scaling_setspeed
done

for method in cpu-freq cpu-gov; do
  zone $method-half --method $method --cpus 0 --speed 54%
  zone $method-widened --method $method --cpus 0 --widen --speed 53.8461538%
  zone $method-whole --method $method --cpus 2-3 --speed 53.8461538%
  zone $method-both --method $method --speed 0-1=53.8461538%,2-3=84.6153846%
  zone $method-unequal --method $method --speed 0=54%,1=80%
done
