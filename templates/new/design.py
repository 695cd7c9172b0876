"""Decisions before the data: constants alone, which page.py imports."""

WIDTHS = (2, 4, 8)  # bits, 2 to 16; the question in experiments/questions.toml asks for the same
