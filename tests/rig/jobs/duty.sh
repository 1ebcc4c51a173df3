# duty.sh RUN...: what a loop of known work gets under emulation, in a guest with instruction-counted time.
# RUN is METHOD:PERIOD:WINDOW_MS:SPEED,...; writes "rate RATE" for no emulation, and "share METHOD PERIOD SPEED RATE".

settle_ms=200

echo "rate $(program rate $settle_ms 500 $((settle_ms * 1000)))"
for run; do
  method=${run%%:*} run=${run#*:}
  period=${run%%:*} run=${run#*:}
  window=${run%%:*}
  # Shorter than the shortest hold, longer than what else interrupts the loop.
  case $period in
    1ms) away_us=30 ;;
    *) away_us=300 ;;
  esac
  case $method in
    # The periods of these are not quite those asked for.
    cpu-hogs | cpu-freeze | cpu-lim) turns=turns ;;
    *) turns= ;;
  esac
  for speed in $(echo "${run#*:}" | tr , ' '); do
    echo "share $method $period $speed $(emu run --quiet --method "$method" --speed "$speed%" --period "$period" -- \
      program rate $settle_ms "$window" $away_us $turns)"
  done
done
