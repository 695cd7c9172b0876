"""What a cubin's machine code reads and writes, without a disassembler.

From sm_75 to sm_100 an instruction is 16 bytes: its lowest nine bits tell what it does, bits 73 to
75 how wide a memory access is; on sm_100, an asynchronous copy has its width in bits 74 and 75.
Checked against nvdisasm 13.2 on all kernels here. Local memory (LDL, STL) is where a compiler puts
what registers cannot hold.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_HMMA, _LDGSTS = 0x03C, 0x1AE
_MEMORY = {
    **{0x181: "LDG", 0x186: "STG", 0x184: "LDS", 0x188: "STS", _LDGSTS: "LDGSTS"},
    **{0x183: "LDL", 0x187: "STL"},
}
_WIDTHS = ("U8", "S8", "U16", "S16", "32", "64", "128", "128")


def instructions(cubin: Path) -> dict[str, Counter[str]]:
    """Kernel name → how often each memory or tensor-core instruction stands in it.

    `between HMMA` is how many instructions of any kind there are from the first to the last.
    """
    is_blackwell = "sm_100" in cubin.name
    elf = cubin.read_bytes()
    return {
        name.removeprefix(".text."): _count(elf[start : start + size], is_blackwell)
        for name, start, size in _sections(elf)
        if name.startswith(".text.")
    }


def shared_bytes(cubin: Path) -> dict[str, int]:
    """Kernel name → bytes of static shared memory; from sm_90 on, 1 KiB more is the system's."""
    return {
        name.removeprefix(".nv.shared."): size
        for name, _, size in _sections(cubin.read_bytes())
        if name.startswith(".nv.shared.") and "reserved" not in name
    }


def _sections(elf: bytes) -> Iterator[tuple[str, int, int]]:
    """Name, place in the file and bytes."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, number, names_index = struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(number)]
    names = sections[names_index][4]
    for name_at, _, _, _, start, length in sections:
        name = elf[names + name_at : elf.index(b"\0", names + name_at)].decode()
        yield name, start, length


def _count(code: bytes, is_blackwell: bool) -> Counter[str]:
    found: Counter[str] = Counter()
    products: list[int] = []
    for i in range(0, len(code), 16):
        word = int.from_bytes(code[i : i + 16], "little")
        operation = word & 0x1FF
        if is_blackwell and operation == _LDGSTS:
            found[f"LDGSTS.{32 << (word >> 74 & 3)}"] += 1
        elif operation in _MEMORY:
            found[f"{_MEMORY[operation]}.{_WIDTHS[word >> 73 & 7]}"] += 1
        elif operation == _HMMA:
            products.append(i // 16)
    found["HMMA"] = len(products)
    found["between HMMA"] = products[-1] - products[0] + 1 if products else 0
    return found
