"""Dot-product units as gates: described, synthesised by yosys, simulated by iverilog, checked.

The Verilog is in `kernels/hardware/`. Torch is imported where a unit meets the number formats: in
`codes` and `stimuli` when they are called, and in `rows`.
"""
