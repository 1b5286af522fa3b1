"""The emulator's data directory: what survives a restart and a kill -9."""
