# pair.sh ROUNDS: how long two threads take that spin for each other so many times: "pair 100 SECONDS" without emulation, and
# "pair SPEED SECONDS" under fracas on two CPUs.

echo "pair 100 $(program pair "$1")"
for speed in 25 50; do
  echo "pair $speed $(emu run --quiet --method fracas --speed "$speed%" --cpus 0-1 -- program pair "$1")"
done
