"""The engine on the wall clock: in process, and as a process of its own."""
