"""What a step costs, and what follows from it: hardware, the datasheet estimator, the fitted step time, the planner.

Pure: values in, values out. The scheduler, the simulator and the planner ask the same objects.
"""
