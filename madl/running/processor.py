"""The processor's name, as far as it decides how fast and in which arithmetic it multiplies.

For provenance alone: nothing that measures asks it, so it is no part of their code's digest.
"""

import functools

from madl.machine.device import cpu_info, cpu_name

INSTRUCTION_SETS = {  # a flag of Linux' → its name, the widest first
    "amx_tile": "AMX",
    "avx512_bf16": "AVX-512 with BF16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
}


@functools.cache
def processor() -> str:
    """Name and widest instructions, "AMD EPYC (AVX2)", as clouds leave out the generation."""
    flags = " ".join(cpu_info("flags")).split()
    widest = next((name for flag, name in INSTRUCTION_SETS.items() if flag in flags), None)
    return f"{cpu_name()} ({widest})" if widest else cpu_name()
