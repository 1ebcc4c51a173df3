# delegation.sh RUN...: the methods as an ordinary user: first in a group that was handed over, where the runs of duty.sh
# are made; then in one that was not, for each method "ended METHOD STATUS" and "words METHOD ...".

root=/sys/fs/cgroup
mkdir /tmp/state
chown user /tmp/state
chmod 700 /tmp/state

# cgroups(7), "Delegation"; the program is in a group of its own, as systemd has it.
mkdir $root/own $root/own/program $root/foreign
for group in $root/own $root/own/program; do
  chown user $group $group/cgroup.procs $group/cgroup.threads $group/cgroup.subtree_control
done

as_user() { # GROUP COMMAND...
  group=$1
  shift
  (
    sh -c "echo \$PPID >$root/$group/cgroup.procs"
    exec su user -c "export XDG_RUNTIME_DIR=/tmp/state; $*"
  )
}

as_user own/program sh /jobs/duty.sh "$@"
find $root/own -mindepth 1 -type d ! -path $root/own/program | sed 's/^/left /'
echo "controllers $(cat $root/own/cgroup.subtree_control)"

for method in cpu-freq cpu-gov cpu-hogs fracas cpu-freeze cpu-lim; do
  as_user foreign emu run --quiet --method $method --speed 50% -- true 2>/tmp/words
  echo "ended $method $?"
  sed "s/^/words $method /" /tmp/words
done
