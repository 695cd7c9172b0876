"""Which processor this is, as far as it decides how fast and in which arithmetic it multiplies.

For provenance alone: nothing that measures asks it, so it is no part of their code's digest.
"""

import functools
from pathlib import Path

from madl.machine.device import cpu_name

INSTRUCTION_SETS = {  # a flag of Linux' → its name, the widest first
    "amx_tile": "AMX",
    "avx512_bf16": "AVX-512 with BF16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
}


@functools.cache
def processor() -> str:
    """Its name and widest instructions, "AMD EPYC (AVX2)": clouds leave the generation out."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        flags = set[str]()
    widest = next((name for flag, name in INSTRUCTION_SETS.items() if flag in flags), None)
    return f"{cpu_name()} ({widest})" if widest else cpu_name()
