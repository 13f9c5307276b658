"""The simulator: the engine's step loop and scheduler on a virtual clock, with an executor that only costs steps."""
