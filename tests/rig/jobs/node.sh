# node.sh: a node with memory and a CPU of its own, ended by its removal and by the death of its emu. Writes "END limit BYTES",
# "END inside CPUS", "END outside CPUS" while it is there and "END after CPUS" then, "END eater STATUS", "END left WORDS".
. /jobs/common.sh

cpus_of() { # PID
  sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$1/status"
}

is_back() {
  [ "$(cpus_of $other)" = 0-1 ]
}

has_no_group() {
  [ -z "$(find /sys/fs/cgroup -name 'emu-*')" ]
}

sleep 1000 &
other=$!
for end in removed killed; do
  emu node create one --cpus 1 --speed 50% --method cpu-freeze --memory 32M --exclusive --quiet || exit
  find /sys/fs/cgroup -path '*emu-*' -name memory.max -exec cat {} + | sed "/max/d; s/^/$end limit /"
  echo "$end inside $(emu node exec one -- sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
  echo "$end outside $(cpus_of $other)"
  emu node exec one -- awk 'BEGIN { text = "x"; while (length(text) < 200000000) text = text text }' >/dev/null 2>&1
  echo "$end eater $?"
  keeper=$(emu node list --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -n 1)
  case $end in
    removed) emu node remove one ;;
    killed) kill -KILL "$keeper" ;;
  esac
  wait_for is_gone "$keeper"
  wait_for is_back
  # The guardian undoes one thing after the other.
  wait_for has_no_group
  echo "$end after $(cpus_of $other)"
  find /sys/fs/cgroup -name 'emu-*' | sed "s/^/$end left /"
done
kill $other
exit 0
