# units.sh METHOD...: a unit of the system and one of a user, each with a loop on CPU 0, slowed to 30 % by their names, with
# systemd as the first process. For each: "used KIND METHOD SHARE", the middle of three windows, "again KIND METHOD SHARE" after
# a restart while emu is attached, "ended KIND METHOD STATUS", and "as-before KIND METHOD" or what differs. At last "ci STATUS TIMES
# SHARE METHODS": how tests of that user ended, how often emu asked for a scope, and what they were given at 50 %, by what.

export NO_COLOR=1
services="/etc/systemd/system/loop.service /home/user/.config/systemd/user/own.service"

as_user() {
  su user -c "export XDG_RUNTIME_DIR=/run/user/1000 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus; $*"
}

# of KIND WORDS...: systemctl of the system or of the user.
of() {
  kind=$1
  shift
  case $kind in
    system) systemctl "$@" ;;
    *) as_user systemctl --user "$@" ;;
  esac
}

unit_of() {
  case $1 in system) echo loop ;; *) echo own ;; esac
}

pid_of() { # KIND
  of "$1" show -P MainPID "$(unit_of "$1")"
}

# All of a unit that emu may change.
place() { # KIND
  pid=$(pid_of "$1")
  of "$1" show -P ActiveState -P SubState -P ControlGroup "$(unit_of "$1")"
  cat "/proc/$pid/cgroup"
  grep Cpus_allowed_list "/proc/$pid/status"
  group=/sys/fs/cgroup$(cut -d: -f3 "/proc/$pid/cgroup")
  cat "$group/cpu.max" "$group/cgroup.freeze" "$group/cgroup.subtree_control" "$group/cpuset.cpus" 2>/dev/null
  ls "$group"
}

watch() { # WORD KIND METHOD
  # systemd is asked before, for a user in a session of its own: that is work beside the loop.
  pid=$(pid_of "$2")
  # It has ended, what joins is noticed and costs are measured by then.
  sleep 1.5
  # The thread that computes is not the first.
  for window in 1 2 3; do
    program used 700000 /proc/"$pid"/task/* | awk '{ print $2 }'
  done | sort >/tmp/windows
  echo "$1 $2 $3 $(sed -n 2p /tmp/windows)"
}

compare() { # KIND METHOD: with /tmp/before; also what was said
  place "$1" >/tmp/after
  if diff /tmp/before /tmp/after >/tmp/differs; then
    echo "as-before $1 $2"
  else
    sed "s/^/differs $1 $2 /" /tmp/differs
  fi
  sed "s/^/said $1 $2 /" /tmp/said
}

attached() { # KIND METHOD COMMAND...
  kind=$1 method=$2
  shift 2
  place "$kind" >/tmp/before
  "$@" >/tmp/said 2>&1 &
  shell=$!
  watch used "$kind" "$method"
  case $kind in
    system | user)
      of "$kind" restart "$(unit_of "$kind")"
      watch again "$kind" "$method" ;;
  esac
  # Of the emu that is attached, and not of a shell or a guardian.
  kill -INT "$(cat /tmp/emu.pid)"
  wait $shell
  echo "ended $kind $method $?"
  compare "$kind" "$method"
}

for service in $services; do
  mkdir -p "$(dirname "$service")"
  printf '[Service]\nExecStart=/usr/bin/program busy 0\n' >"$service"
done
chown -R user /home/user
# Writes its process ID, and is then emu.
printf '#!/bin/sh\necho $$ >/tmp/emu.pid\nexec emu "$@"\n' >/usr/bin/numbered
chmod 755 /usr/bin/numbered
touch /tmp/emu.pid
chmod 666 /tmp/emu.pid
of system daemon-reload
of user daemon-reload
of system start loop
for method; do
  attached system "$method" numbered attach --unit loop --speed 30% --cpus 0 --method "$method"
done

# A node takes it by the file, and gives it back.
place system >/tmp/before
printf '[node.one]\ncpus = "0"\nspeed = "30%%"\nunits = ["loop"]\n' >/tmp/nodes.toml
emu node apply --quiet /tmp/nodes.toml
echo "ended system node $?"
watch used system node
of system restart loop
watch again system node
emu node apply /tmp/nodes.toml >/tmp/said 2>&1
emu node remove one --free
compare system node
of system stop loop

of user start own
# By root, by a user who has no groups, and by one who has a scope that is delegated.
attached root cpu-freeze numbered attach --unit own --speed 30% --cpus 0 --method cpu-freeze
attached user cpu-lim as_user numbered attach --unit own --speed 30% --cpus 0 --method cpu-lim
for method in cpu-freeze fracas; do
  attached scope "$method" as_user systemd-run -q --user --scope -p Delegate=yes \
    numbered attach --unit own --speed 30% --cpus 0 --method "$method"
done
of user stop own

# Tests of a user, in a scope that emu asks for.
as_user emu ci --speeds 100%,50% --reps 1 --cpus 0 --json /tmp/ci.json -- \
  "sh -c 'i=0; while [ \$i -lt 150000 ]; do i=\$((i+1)); done'" >/tmp/said 2>&1
echo "ci $? $(grep -c 'begins anew' /tmp/said) $(sed -n 's/.*"share": \([0-9.]*\).*/\1/p' /tmp/ci.json | tail -n 1) $(sed -n 's/.*"method": "\(.*\)".*/\1/p' /tmp/ci.json | sort -u | tr '\n' ' ')"
sed "s/^/said ci /" /tmp/said
