# trace.sh METHOD...: a loop that follows a trace: "trace METHOD JSON", as `emu run --json` has it.

printf 'time_s,cpu,speed\n0,*,80%%\n1,*,30%%\n2,*,60%%\n3,*,end\n' >/tmp/trace.csv
for method; do
  # It ends by itself, after the trace.
  emu run --quiet --method "$method" --trace /tmp/trace.csv --json /tmp/run.json -- timeout 3 program busy 0
  echo "trace $method $(tr -d '\n' </tmp/run.json)"
done
exit 0 # and not that of the time-out
