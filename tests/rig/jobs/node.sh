# node.sh: a node with memory and a CPU of its own, ended by its removal and by the death of its emu. Writes "END limit BYTES",
# "END inside CPUS", "END outside CPUS" while it is there and "END after CPUS" then, "END eater STATUS", "END left WORDS". Then
# what a file has join and leave, by each method: "METHOD joined PLACE" and "METHOD left PLACE", "METHOD removed PLACE".
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

place_of() { # PID
  sed -n 's/^0:://p' "/proc/$1/cgroup" | tr -d '\n'
  echo " $(cpus_of "$1")"
}

# In a group of its own, and with a child.
mkdir /sys/fs/cgroup/home
sh -c 'while :; do sleep 0.05; done' &
shell=$!
echo $shell > /sys/fs/cgroup/home/cgroup.procs
node() { # METHOD MEMBERS
  printf '[node.one]\ncpus = "1"\nspeed = "50%%"\nmethod = "%s"\n%s\n' "$1" "$2" | emu node apply - --quiet || exit
}
for method in cpu-lim cpu-freeze fracas; do
  node $method "pids = [$shell]"
  place_of $shell | sed "s/emu-.* /emu /; s/^/$method joined /"
  node $method ""
  echo "$method left $(place_of $shell)"
  emu node list --json | tr -d ' \n' | sed -n "s/.*\"members\":\(\[[^]]*\]\).*/$method members \1\n/p"
  emu node remove one
  echo "$method removed $(place_of $shell)"
done
kill $shell
kill $other
exit 0
