# cgroups.sh NAME...: what two busy threads, one on each CPU, use under these methods, by the kernel's own account. For each:
# "used NAME SHARE...", and while it is at work "group NAME FILE VALUE" for the limits of its groups.
. /jobs/common.sh

root=/sys/fs/cgroup
[ -e $root/cgroup.controllers ] && is_v2=1

# The program: two threads that compute for as long as it takes.
cat >/tmp/program <<'JOB'
echo $$ >/tmp/program.pid
exec program busy 0 1
JOB

watch() { # NAME
  program=$(cat /tmp/program.pid)
  # Everything is spread and settled by then. Nothing else may run on these CPUs while they are watched.
  sleep 1
  echo "used $1 $(program used 1700000 /proc/"$program"/task/*)"
  if [ -n "$is_v2" ]; then
    for moment in $(seq 20); do
      cat $root/*/cgroup.freeze
      usleep 17000
    done >/tmp/frozen 2>/dev/null
    echo "frozen $1 $(grep -c 1 /tmp/frozen)"
  fi
  find $root -mindepth 2 \( -name cpu.max -o -name cgroup.type -o -name cpu.weight -o -name cpuset.cpus \) >/tmp/files
  for file in $(cat /tmp/files); do
    echo "group $1 ${file#"$root"/} $(cat "$file")"
  done
}

zone() { # NAME ARGUMENTS...
  name=$1
  shift
  rm -f /tmp/program.pid
  emu run --quiet "$@" -- sh /tmp/program &
  emu=$!
  await "$name"
  watch "$name"
  kill -KILL "$(cat /tmp/program.pid)"
  wait $emu
}

# A group that is there already, as a container's would be.
attach() { # NAME ARGUMENTS...
  name=$1
  shift
  mkdir $root/theirs
  rm -f /tmp/program.pid
  (sh -c 'echo $PPID >/sys/fs/cgroup/theirs/cgroup.procs'; exec sh /tmp/program) &
  emu=$!
  await "$name"
  program=$emu
  emu attach --quiet --cgroup /theirs "$@" &
  emu=$!
  watch "$name"
  echo 1 >$root/theirs/cgroup.kill
  wait $program $emu
  echo "left-in-theirs $name $(cat $root/theirs/cgroup.freeze) $(cat $root/theirs/cpu.max) [$(cat $root/theirs/cgroup.subtree_control)] $(ls -d $root/theirs/*/ 2>/dev/null)"
  rmdir $root/theirs
}

for name; do
  case $name in
    *-unequal) zone "$name" --method "${name%-unequal}" --speed 0=40%,1=60% ;;
    fracas-*) zone "$name" --method "fracas:${name#fracas-}" --speed 40% ;;
    attach-*) attach "$name" --method "${name#attach-}" --speed 40% ;;
    *) zone "$name" --method "$name" --speed 40% ;;
  esac
done
exit 0 # and not the last program's, which was killed
