# describe.sh: what emu tells of the host and of the methods.
emu info
emu methods
emu methods --method cpu-freq
emu methods --method cpu-gov --speed 20%
