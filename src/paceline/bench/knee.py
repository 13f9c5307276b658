"""The knee of a curve: where more load stops buying throughput.

Definition: the point farthest above the chord from the curve's first point to its last, with load and throughput both
scaled to 0..1. Load is log2(concurrency), or the rate. For a server that scales perfectly up to some load and not at
all beyond it, that is exactly this load. A curve that never rises 5 % above its chord has no knee in the range swept.
"""

from collections.abc import Sequence

MIN_HEIGHT = 0.05


def knee_index(loads: Sequence[float], throughputs: Sequence[float]) -> int | None:
    """Index of the knee; `loads` ascending. None: there is none between the ends."""
    if len(loads) < 3 or max(throughputs) <= throughputs[0]:
        return None
    # Throughput may fall at the end: scale by its highest, so that the chord ends where the curve was best.
    low, high = throughputs[0], max(throughputs)
    heights = [
        (throughput - low) / (high - low) - (load - loads[0]) / (loads[-1] - loads[0])
        for load, throughput in zip(loads, throughputs, strict=True)
    ]
    best = max(range(len(heights)), key=heights.__getitem__)
    return best if heights[best] >= MIN_HEIGHT else None
