"""This machine as hardware, measured."""

from paceline.engine.machine_speed import measure_this_machine


def test_this_machine_is_measured() -> None:
    machine = measure_this_machine()
    assert machine.source.startswith("measured with NumPy on ")
    assert 1e8 < machine.bytes_per_s < 1e13
    assert 1e8 < machine.flops_per_s < 1e15
    assert machine.memory_bytes > 2**28
