"""The numbers of passes of fine-tuning that are tried on the tuning seed."""

PASSES_TRIED = (3, 1, 2)  # over the training sentences; the longest first
