"""Makes the undefined weak symbols of NVIDIA's library strong in an ELF file for 64 bits.

A missing function of an old library then ends the process with its name, instead of a jump to 0. A
linker for which they are strong would do the same, but zig's refuses to leave them undefined.
"""

import struct
import sys

SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
DYNSYM, WEAK, GLOBAL = 11, 2, 1


def main(path):
    with open(path, "rb") as file:
        elf = bytearray(file.read())
    # Find the section of dynamic symbols, and that of their names.
    start, size, count = struct.unpack_from("<Q", elf, 0x28)[0], *struct.unpack_from("<HH", elf, 0x3A)
    sections = [SECTION.unpack_from(elf, start + size * i) for i in range(count)]
    _, _, _, _, offset, length, link, _, _, _ = next(section for section in sections if section[1] == DYNSYM)
    names = sections[link][4]

    changed = 0
    for at in range(offset, offset + length, SYMBOL.size):
        name, info, _, section, _, _ = SYMBOL.unpack_from(elf, at)
        if section == 0 and info >> 4 == WEAK and elf.startswith(b"nvml", names + name):
            elf[at + 4] = GLOBAL << 4 | info & 0xF
            changed += 1
    if changed == 0:
        sys.exit(f"cannot find weak symbols of NVIDIA's library in {path}")
    with open(path, "wb") as file:
        file.write(elf)


if __name__ == "__main__":
    main(sys.argv[1])
