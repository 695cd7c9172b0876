"""Question 4.3c's design: the orders of threads that are mapped, and the sizes of a group."""

GROUPS = (8, 16, 32, 64, 128, 256, 512)  # values under one scale
USUAL_GROUP = 32  # OCP's
ELEMENTS = 1 << 16
LAB, TRANSPOSED, TILE, FEWER = "lab", "lab, transposed", "tile", "lab, fewer threads"
MAPPINGS = (LAB, TRANSPOSED, TILE)  # of which one load of a warp is counted
TALLEST, SLOTS = 128, 1024  # of the coursework's tile: the longest column, and values in all
