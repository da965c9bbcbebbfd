#!/usr/bin/env python3
"""Makes shared libraries and programs built on this distribution run on older ones, and reports symbols that prevent it
(scripts/build_wheel.sh).

    portable_elf.py age FILE...                    requests the old version of symbols that have a newer version with the same behavior
    portable_elf.py weaken FILE NAMES              makes undefined symbols listed in NAMES, a file, weak: 0 if no library has them
    portable_elf.py check FILE...                  fails and lists the symbols that need more than manylinux_2_34
"""
import pathlib
import struct
import sys

# The newest symbol versions that both manylinux_2_34 (AlmaLinux 9: glibc 2.34, GCC 11) and Ubuntu 22.04 have.
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (11,)}

# GCC 12 gave condition_variable::wait a second version because it became noexcept; the older version still exists and does the same (see
# condition_variable.cc of libstdc++). Both version names have the same length, so the older name can overwrite the newer one.
MOVED = {"_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE": ("GLIBCXX_3.4.30", "GLIBCXX_3.4.11")}

STB_GLOBAL, STB_WEAK = 1, 2
SHT_DYNSYM, SHT_VERNEED, SHT_VERSYM = 11, 0x6FFFFFFE, 0x6FFFFFFF


def elf_hash(name):
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value & 0xFFFFFFFF


class Elf:
    """The dynamic symbols of a little-endian ELF64 file, and the versions that they need. Both can be changed in place."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.data = bytearray(self.path.read_bytes())
        if self.data[:6] != b"\x7fELF\x02\x01":
            sys.exit(f"portable_elf.py: {path} is not a little-endian 64-bit ELF file")
        at, = struct.unpack_from("<Q", self.data, 0x28)
        size, count = struct.unpack_from("<HH", self.data, 0x3A)
        headers = [struct.unpack_from("<IIQQQQIIQQ", self.data, at + i * size) for i in range(count)]
        of = {header[1]: header for header in headers}
        _, _, _, _, self.symbols, self.symbols_size, link, *_ = of[SHT_DYNSYM]
        self.strings = headers[link][4]
        self.versions = of[SHT_VERSYM][4] if SHT_VERSYM in of else None
        self.needed = of.get(SHT_VERNEED)

    def text(self, offset):
        begin = self.strings + offset
        return self.data[begin:self.data.index(0, begin)].decode()

    def undefined(self):
        """Yields (offset, name, version index) of each symbol that another library must define."""
        for at in range(self.symbols + 24, self.symbols + self.symbols_size, 24):
            name, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", self.data, at)
            if section == 0 and name:
                version = struct.unpack_from("<H", self.data, self.versions + (at - self.symbols) // 12)[0] & 0x7FFF if self.versions else 1
                yield at, self.text(name), version

    def wanted(self):
        """Yields (offset of the entry, name, index) of each version that the file needs from another library."""
        at = self.needed[4] if self.needed else None
        for _ in range(self.needed[7] if self.needed else 0):
            _, count, _, first, following = struct.unpack_from("<HHIII", self.data, at)
            entry = at + first
            for _ in range(count):
                _, _, other, name, after = struct.unpack_from("<IHHII", self.data, entry)
                yield entry, self.text(name), other & 0x7FFF
                entry += after
            at += following

    def users(self, index):
        return [name for _, name, version in self.undefined() if version == index]

    def save(self):
        self.path.write_bytes(self.data)


def age(elf):
    for entry, version, index in list(elf.wanted()):
        moved = {old for name in elf.users(index) for new, old in (MOVED.get(name, (None, None)),) if new == version}
        if len(moved) == 1 and all(name in MOVED for name in elf.users(index)):
            old = moved.pop()
            name, = struct.unpack_from("<I", elf.data, entry + 8)
            elf.data[elf.strings + name:elf.strings + name + len(version)] = old.encode()
            struct.pack_into("<I", elf.data, entry, elf_hash(old))
    elf.save()


def weaken(elf, names):
    for at, name, _ in elf.undefined():
        if name in names:
            elf.data[at + 4] = STB_WEAK << 4 | elf.data[at + 4] & 15
    elf.save()


def too_new(elf):
    for _, version, index in elf.wanted():
        kind, _, number = version.partition("_")
        if kind in NEWEST and number[:1].isdigit() and tuple(map(int, number.split("."))) > NEWEST[kind]:
            yield from (f"{elf.path}: {name} needs {version}" for name in elf.users(index) or ["a version without a symbol"])


def main(command, *files):
    if command == "age":
        for file in files:
            age(Elf(file))
    elif command == "weaken":
        weaken(Elf(files[0]), set(pathlib.Path(files[1]).read_text().split()))
    elif command == "check":
        found = [line for file in files for line in too_new(Elf(file))]
        if found:
            sys.exit("portable_elf.py: newer than manylinux_2_34:\n  " + "\n  ".join(found))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 2 else sys.exit(__doc__)
