# many.sh METHOD...: how long each method takes to begin and to end on all CPUs of the guest, in hundredths of a second, and
# what it leaves. Writes "ended METHOD CODE BEGIN END", "said METHOD WORDS" and "left METHOD WORDS".
. /jobs/common.sh

now() {
  cut -d' ' -f1 /proc/uptime | tr -d .
}

snapshot >/tmp/before
for method; do
  begin=$(now)
  emu run --method "$method" --speed 60% -- sh -c 'cut -d" " -f1 /proc/uptime >/tmp/begun; sleep 0.2; cut -d" " -f1 /proc/uptime >/tmp/ended' 2>/tmp/words
  code=$?
  end=$(now)
  echo "ended $method $code $(($(tr -d . </tmp/begun) - begin)) $((end - $(tr -d . </tmp/ended)))"
  sed "s/^/said $method /" /tmp/words
  snapshot >/tmp/after
  diff /tmp/before /tmp/after | sed "s/^/left $method /"
done
exit 0
