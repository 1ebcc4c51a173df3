# duty.sh RUN...: what a loop of known work gets under emulation, in a guest with instruction-counted time.
# RUN is METHOD:PERIOD:WINDOW_MS:SPEED,...; writes "rate RATE" for no emulation, and "share METHOD PERIOD SPEED RATE".

settle_ms=200

echo "rate $(program rate $settle_ms 500)"
for run; do
  method=${run%%:*} run=${run#*:}
  period=${run%%:*} run=${run#*:}
  window=${run%%:*}
  for speed in $(echo "${run#*:}" | tr , ' '); do
    echo "share $method $period $speed $(emu run --quiet --method "$method" --speed "$speed%" --period "$period" -- \
      program rate $settle_ms "$window")"
  done
done
