"""The pure heart: requests, blocks, the radix tree, the scheduler and the step loop. Standard library only."""
