# together.sh METHOD-WHO-ENDING...: two emus at once, on a CPU each, which need the same controllers switched on or the same
# real-time limit lifted. The first or the second of them ends in this way, later the other one. "seen CASE both|one
# RT_RUNTIME_US CONTROLLER..." tells what was in force while both were at work and when one was left, "used CASE SHARE..."
# what the tasks of the one that was left got, "left CASE ..." everything that is not as it was.
. /jobs/common.sh

root=/sys/fs/cgroup

state() {
  snapshot
  echo "controllers $(cat $root/cgroup.subtree_control)"
}

begin() { # CPU ARGUMENTS...
  cpu=$1
  shift
  rm -f /tmp/program.pid
  emu run --quiet --cpus "$cpu" "$@" -- \
    sh -c "echo \$\$ >/tmp/program.pid; exec program busy $cpu" &
  emu=$!
  await "$cpu"
  echo "$emu $(guardian_of $emu) $(cat /tmp/program.pid)" >"/tmp/zone-$cpu"
}

end() { # CPU ENDING
  read -r emu guardian program <"/tmp/zone-$1"
  case $2 in
    release) kill -KILL "$program" ;;
    terminate) kill -TERM "$emu" ;;
    kill) kill -KILL "$emu" ;;
    both) kill -KILL "$guardian" "$emu" ;;
  esac
  wait "$emu"
  wait_for is_gone "$guardian"
  [ "$2" != both ] || emu restore >/dev/null
  kill -KILL "$program" 2>/dev/null
  wait_for is_gone "$program"
}

look() { # MOMENT
  echo "seen $case $1 $(cat /proc/sys/kernel/sched_rt_runtime_us) $(cat $root/cgroup.subtree_control)"
}

one() { # WHO ENDING ARGUMENTS...
  case $1 in
    first) goes=0 stays=1 ;;
    second) goes=1 stays=0 ;;
  esac
  ending=$2
  shift 2
  state >/tmp/before
  begin 0 "$@"
  begin 1 "$@"
  look both
  end $goes "$ending"
  look one
  read -r _ _ program <"/tmp/zone-$stays"
  # It is settled by then. Nothing else may run on its CPU while it is watched.
  sleep 1
  echo "used $case $(program used 1700000 /proc/"$program"/task/*)"
  end $stays release
  state >/tmp/after
  diff /tmp/before /tmp/after | sed -n "s/^[-+][^-+]/left $case &/p"
}

mkdir -p /run/emu
# What is kept between runs, the lock for example, is there from now on.
emu run --quiet --method cpu-freeze --speed 50% -- true
# Nobody has these on, as on a host whose manager leaves the root alone.
echo "-cpu -cpuset" >$root/cgroup.subtree_control
echo 900000 >/proc/sys/kernel/sched_rt_runtime_us
for case; do
  how=${case##*-}
  who=${case%-*}
  method=${who%-*} who=${who##*-}
  case $method in
    cpu-hogs) one "$who" "$how" --method cpu-hogs --speed 7% --lift-rt-limit ;;
    *) one "$who" "$how" --method "$method" --speed 40% ;;
  esac
done
exit 0 # and not the last program's, which was killed
