"""Dot-product units as gates: described, synthesised by yosys, simulated by iverilog, checked.

The Verilog is in `kernels/hardware/`. Nothing here imports torch but `reference`, where a unit
meets the number formats.
"""
