# many.sh METHOD...: sixteen busy threads on as many CPUs at 40 %. For each method: "engaged METHOD SECONDS" until its program
# began, "used METHOD SHARE..." by the kernel's own account, and "told METHOD HEALTH LOW HIGH" as emu tells it at the end, or
# "told METHOD HEALTH -".
. /jobs/common.sh

cat >/tmp/program <<'JOB'
cut -d ' ' -f 1 /proc/uptime >/tmp/began
echo $$ >/tmp/program.pid
exec program busy 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
JOB

for method; do
  rm -f /tmp/program.pid
  read -r before _ </proc/uptime
  emu run --quiet --json /tmp/json --method "$method" --speed 40% -- sh /tmp/program &
  emu=$!
  await "$method"
  program=$(cat /tmp/program.pid)
  sleep 1
  used=$(program used 4000000 /proc/"$program"/task/*)
  kill -KILL "$program"
  wait $emu
  echo "$before $(cat /tmp/began)" | awk -v method="$method" '{ print "engaged", method, $2 - $1 }'
  # The first thread only waits.
  echo "used $method ${used#* }"
  awk -v method="$method" '
    /^  "delivered": null/ { share = " -" }
    /^    "(low|high)": / { share = share " " $2 + 0 }
    /"health": / { health = $2 }
    END { print "told", method, health share }' /tmp/json
done
exit 0 # and not the last program's, which was killed
