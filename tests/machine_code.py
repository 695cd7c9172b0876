"""What a cubin's machine code reads and writes, without a disassembler.

From sm_75 to sm_100 an instruction is 16 bytes: its lowest nine bits tell what it does, bits 73 to
75 how wide a memory access is; on sm_100, an asynchronous copy has its width in bits 74 and 75.
Checked against nvdisasm 13.2 on all kernels here.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_HMMA, _LDGSTS = 0x03C, 0x1AE
_MEMORY = {0x181: "LDG", 0x186: "STG", 0x184: "LDS", 0x188: "STS", _LDGSTS: "LDGSTS"}
_WIDTHS = ("U8", "S8", "U16", "S16", "32", "64", "128", "128")


def instructions(cubin: Path) -> dict[str, Counter[str]]:
    """Kernel name → how often each memory or tensor-core instruction stands in it."""
    is_blackwell = "sm_100" in cubin.name
    return {name: _count(code, is_blackwell) for name, code in _texts(cubin.read_bytes())}


def _texts(elf: bytes) -> Iterator[tuple[str, bytes]]:
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, number, names_index = struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(number)]
    names = sections[names_index][4]
    for name_at, _, _, _, start, length in sections:
        name = elf[names + name_at : elf.index(b"\0", names + name_at)].decode()
        if name.startswith(".text."):
            yield name.removeprefix(".text."), elf[start : start + length]


def _count(code: bytes, is_blackwell: bool) -> Counter[str]:
    found: Counter[str] = Counter()
    for i in range(0, len(code), 16):
        word = int.from_bytes(code[i : i + 16], "little")
        operation = word & 0x1FF
        if is_blackwell and operation == _LDGSTS:
            found[f"LDGSTS.{32 << (word >> 74 & 3)}"] += 1
        elif operation in _MEMORY:
            found[f"{_MEMORY[operation]}.{_WIDTHS[word >> 73 & 7]}"] += 1
        elif operation == _HMMA:
            found["HMMA"] += 1
    return found
