"""Workloads: who asks what, when. Pure and seeded: the load generator and the simulator iterate the same items."""
