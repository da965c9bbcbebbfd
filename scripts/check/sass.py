#!/usr/bin/env python3
"""Checks the machine code of the CUDA kernels in built objects, without a GPU.

  scripts/check/sass.py                                       # build/kernels/libtessera_kernels.a
  scripts/check/sass.py FILE... --verbose                     # also lists every kernel with its numbers

For each kernel and each GPU architecture in the files, it reads the resources and the instructions that the CUDA tool cuobjdump prints.
No kernel may need more than 64 bytes of stack per thread, where spilled registers go, and no loop may access local memory (or the stack). The
table EXPECTED below adds what each kernel should have: at most so many registers, certain instructions, such as those of tensor cores, and
words of 16 bytes in its main loop; and which kernels have more of the faults than others. An entry without a kernel is a fault, too.

cuobjdump is searched on the PATH, in CUDA's folder (CUDA_HOME, or nvcc's), and in the Triton package that comes with PyTorch for python3.
Exit code: 0 if there is no fault; 1 if there is one, after listing the faults; 77 without cuobjdump or c++filt, or if the files have no GPU code.
"""
import argparse
import collections
import dataclasses
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MOST_STACK = 64  # bytes per thread
LOCAL = ("LDL", "STL")


@dataclasses.dataclass(frozen=True)
class Expectation:
    kernels: str              # regular expression of the names, such as sum_columns<float>
    registers: int = 255      # at most
    instructions: tuple = ()  # each is in the kernel
    # In one loop, the kernel loads and stores at least so many words of 16 bytes in global memory. A thread has as many loads in flight as
    # there are different registers that they load into.
    loads: int = 0
    stores: int = 0
    stack: int = MOST_STACK   # bytes, at most
    local: int = 0            # accesses to local memory in loops, at most
    architectures: str = r"sm_\d+a?"


EXPECTED = [
    Expectation(r"sum_columns<\w+>", registers=80, loads=8),  # three blocks of 256 threads per multiprocessor
    Expectation(r"write_gradient<\w+>", registers=64, stores=4),
    Expectation(r"backpropagate<.*>", loads=12, stores=8),
    Expectation(r"add_and_normalize<.*>", loads=8, stores=8),
    Expectation(r"activate<.*, false>", registers=64, loads=4, stores=4),
    Expectation(r"activate<.*, true>", registers=85, loads=8, stores=4),
    Expectation(r"backpropagate_activation<.*, false>", registers=128, loads=8, stores=4),  # two blocks of 256 threads per multiprocessor
    Expectation(r"backpropagate_activation<.*, true>", registers=128, loads=12, stores=8),
    Expectation(r"update_chunks", registers=64, loads=8, stores=6),  # four blocks of 256 threads
    Expectation(r"sparsify_group_(for|back)ward_kernel<.*>", instructions=("HMMA", "LDGSTS")),
    # Blocks per multiprocessor: four up to 80 tokens, then three and two; in the backward pass three up to 64 tokens (heads of width 64),
    # two of one warpgroup up to 128, and one of two above.
    Expectation(r"attention_forward_kernel<\d+, (56|80)>", registers=128, instructions=("HGMMA", "LDGSTS"), stores=4, stack=0),
    Expectation(r"attention_forward_kernel<\d+, 128>", registers=168, instructions=("HGMMA", "LDGSTS"), stores=4, stack=0),
    Expectation(r"attention_forward_kernel<\d+, (200|256)>", instructions=("HGMMA", "LDGSTS"), stores=4, stack=0),
    Expectation(r"attention_backward_kernel<64, 1, 1, 4>", registers=168, instructions=("HGMMA", "LDGSTS"), stores=4, stack=0),
    Expectation(r"attention_backward_kernel<(80, 1, 1, 4|\d+, \d, 2, \d+)>", instructions=("HGMMA", "LDGSTS"), stores=4, stack=0),
    Expectation(r"sparsify_group_hopper_kernel<Hopper(For|Back)wardBlock<\d+> ?>", registers=168,
                instructions=("HGMMA", "UTMALDG", "UTMASTG", "USETMAXREG")),
    Expectation(r"token_max_projection_hopper_kernel<\d+>", registers=168, instructions=("HGMMA", "UTMALDG", "USETMAXREG"), stack=0),
    Expectation(r"max_similarity_hopper_kernel<\d+, \d>", registers=168, instructions=("HGMMA", "UTMALDG", "USETMAXREG"), stack=0),
    Expectation(r"max_similarity_gradient_kernel<\w+>", registers=168, instructions=("HGMMA", "UTMALDG", "USETMAXREG", "HSET2"), stores=4, stack=0),
    Expectation(r"add_tokens<Bfloat16>", registers=85, loads=8, stores=2),
    Expectation(r"add_tokens<float>", registers=128, loads=16, stores=4),
    Expectation(r"add_table_rows<\w+>", registers=64, loads=4, stores=1),
    # Two blocks of 256 threads per multiprocessor.
    Expectation(r"token_contrast_(for|back)ward_kernel<\w+>", registers=128, instructions=("HMMA", "LDGSTS")),
    Expectation(r"token_contrast_backward_kernel<\w+>", stores=2),
    Expectation(r"project_tile<Bfloat16, \d>", instructions=("HMMA", "LDGSTS")),
    Expectation(r"project_tile<float, \d>", instructions=("FFMA", "LDGSTS")),
    Expectation(r"compare_rows<\d, \d+>", instructions=("HMMA", "LDGSTS")),
    Expectation(r"cross_entropy_row<\w+, 0>", loads=1),  # the others keep a row in registers, without a loop
    # These kernels spill registers in their loops. The rows and sums of a scaled residual in float32 do not fit in 255 registers.
    Expectation(r"sparsify_group_backward_kernel<float, .*>", local=35),
    Expectation(r"sparsify_group_backward_kernel<Bfloat16, .*>", local=8),
    Expectation(r"compare_rows<\d, 4>", local=21),
    Expectation(r"backpropagate<float, float, float, true>", stack=224, local=166),
    Expectation(r"backpropagate<float, Bfloat16, float, true>", stack=128, local=96),
    Expectation(r"backpropagate<(float|Bfloat16), Bfloat16, .*, true>", local=40),
    Expectation(r"add_and_normalize<.*>", local=8),
]


@dataclasses.dataclass
class Instruction:
    address: int
    name: str      # with its modifiers, such as LDG.E.128
    operands: str

    def is_wide(self, kind):
        return self.name.startswith(kind + ".") and ".128" in self.name


@dataclasses.dataclass
class Kernel:
    name: str
    architecture: str
    registers: int
    stack: int
    instructions: list

    def has(self, name):
        return any(each.name == name or each.name.startswith(name + ".") for each in self.instructions)

    @functools.cached_property
    def loops(self):
        """The instructions of each loop: those from the target of a backward jump to the jump. (A jump to itself ends a kernel.)"""
        found = []
        for jump in self.instructions:
            target = re.search(r"\b0x([0-9a-f]+)$", jump.operands) if jump.name.startswith("BRA") else None
            if target and int(target[1], 16) < jump.address:
                found.append([each for each in self.instructions if int(target[1], 16) <= each.address <= jump.address])
        return found

    @functools.cached_property
    def local_in_loops(self):
        """The number of instructions in loops that access local memory."""
        return len({each.address for loop in self.loops for each in loop if each.name.split(".")[0] in LOCAL})


def wide_loads(instructions):
    return len({each.operands.split(",")[0] for each in instructions if each.is_wide("LDG")})


def wide_stores(instructions):
    return sum(each.is_wide("STG") for each in instructions)


def most(count, kernel):
    return max(map(count, kernel.loops), default=0)


def faults_of(kernel, expected=()):
    """Returns what is wrong with a kernel. `expected` is the list of the expectations that are for it."""
    faults = []
    stack, local = max([MOST_STACK, *(each.stack for each in expected)]), max([0, *(each.local for each in expected)])
    if kernel.stack > stack:
        faults.append(f"{kernel.stack} bytes of stack, more than {stack}")
    if kernel.local_in_loops > local:
        faults.append(f"{kernel.local_in_loops} accesses to local memory in loops, more than {local}")
    for each in expected:
        if kernel.registers > each.registers:
            faults.append(f"{kernel.registers} registers, more than {each.registers}")
        faults += [f"no {name} instruction" for name in each.instructions if not kernel.has(name)]
        for what, count, least in (("loads", wide_loads, each.loads), ("stores", wide_stores, each.stores)):
            if most(count, kernel) < least:
                faults.append(f"at most {most(count, kernel)} {what} of 16 bytes at a time in a loop, fewer than {least}")
    return faults


def readable(mangled):
    """Returns the names of functions without return types, namespaces and parameters."""
    text = subprocess.run(["c++filt"], input="\n".join(mangled), check=True, capture_output=True, text=True).stdout
    names = []
    for line in text.splitlines():
        line = re.sub(r"tessera::kernels::(\w+::)?(\(anonymous namespace\)::)?", "", line)
        names.append(re.sub(r"\(.*", "", line.removeprefix("void ")))
    return names


def parse(resources, code):
    """Returns the kernels in the two listings of cuobjdump: -res-usage and -sass."""
    used, architecture, name = {}, None, None
    for line in resources.splitlines():
        if found := re.match(r"arch = (\w+)", line):
            architecture = found[1]
        elif found := re.match(r"\s*Function (\S+):$", line):
            name = found[1]
        elif found := re.match(r"\s*REG:(\d+) STACK:(\d+) ", line):
            used[architecture, name] = int(found[1]), int(found[2])
    kernels = []
    for line in code.splitlines():
        text = line.lstrip()
        if text.startswith("/* "):  # the encoding of an instruction, on a line of its own
            continue
        if not text.startswith("/*"):
            if found := re.match(r"arch = (\w+)", line):
                architecture = found[1]
            elif found := re.match(r"\s*Function : (\S+)$", line):
                kernels.append(Kernel(found[1], architecture, *used[architecture, found[1]], []))
        elif found := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ )?\s*([A-Z][\w.]*)\s*(.*?)(?: *;| {3,}|$)", line):
            kernels[-1].instructions.append(Instruction(int(found[1], 16), found[2], found[3]))
    for kernel, name in zip(kernels, readable([kernel.name for kernel in kernels])):
        kernel.name = name
    return kernels


def find_tool():
    folders = [*os.environ.get("PATH", "").split(os.pathsep)]
    nvcc = shutil.which("nvcc") or os.environ.get("CUDACXX")
    folders += [f"{os.environ['CUDA_HOME']}/bin"] if "CUDA_HOME" in os.environ else []
    folders += [str(pathlib.Path(nvcc).parent)] if nvcc else []
    folders += [f"{folder}/triton/backends/nvidia/bin" for folder in sys.path]
    return shutil.which("cuobjdump", path=os.pathsep.join(folders))


def listing(tool, option, file):
    ran = subprocess.run([tool, option, file], capture_output=True, text=True)
    if ran.returncode != 0 and "does not contain device code" not in ran.stderr:
        sys.exit(f"check/sass.py: cuobjdump cannot read {file}: {ran.stderr.strip()}")
    return ran.stdout


def check(kernels, expected=EXPECTED):
    """Returns the faults of all kernels, one line each."""
    lines, unused = [], set(expected)
    for kernel in kernels:
        mine = [each for each in expected if re.fullmatch(each.kernels, kernel.name) and re.fullmatch(each.architectures, kernel.architecture)]
        unused -= set(mine)
        lines += [f"{kernel.name} for {kernel.architecture}: {fault}" for fault in faults_of(kernel, mine)]
    return lines + [f"the table expects a kernel {each.kernels}, but there is none" for each in expected if each in unused]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, default=[ROOT / "build/kernels/libtessera_kernels.a"],
                        help="objects, libraries or programs (default: build/kernels/libtessera_kernels.a)")
    parser.add_argument("--verbose", action="store_true", help="also list every kernel with its numbers")
    args = parser.parse_args()
    tool = find_tool()
    if tool is None or shutil.which("c++filt") is None:
        print(f"skipped: no {'cuobjdump' if tool is None else 'c++filt'}")
        sys.exit(77)
    kernels = [kernel for file in args.files for kernel in parse(listing(tool, "-res-usage", file), listing(tool, "-sass", file))]
    if not kernels:
        print("skipped: the files have no code for GPUs")
        sys.exit(77)
    if args.verbose:
        for each in kernels:
            print(f"{each.name} {each.architecture}: {each.registers} registers, {each.stack} bytes of stack, {each.local_in_loops} local "
                  f"accesses in loops, at most {most(wide_loads, each)} loads and {most(wide_stores, each)} stores of 16 bytes in a loop")
    faults = check(kernels)
    for line in faults:
        print(f"check/sass.py: {line}")
    counts = collections.Counter(kernel.architecture for kernel in kernels)
    print(", ".join(f"{count} kernels for {name}" for name, count in sorted(counts.items())) + f", {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
