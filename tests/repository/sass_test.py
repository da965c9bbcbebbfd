#!/usr/bin/env python3
"""Runs scripts/check/sass.py on short listings in the form of cuobjdump's, correct ones and ones with each kind of fault."""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/check"))
import sass  # noqa: E402

MANGLED = "_ZN7tessera7kernels12_GLOBAL__N_13sumIfEEvPT_"  # void tessera::kernels::(anonymous namespace)::sum<float>(float*)
RESOURCES = f"""
Fatbin elf code:
================
arch = sm_90
Resource usage:
 Common:
  GLOBAL:0
 Function {MANGLED}:
  REG:40 STACK:8 SHARED:0 LOCAL:0 CONSTANT[0]:480 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
LOOP = ["LDG.E.128 R4, desc[UR4][R2.64]", "@P1 LDG.E.NA.128.CONSTANT R8, desc[UR4][R2.64]", "FADD R12, R4, R8",
        "STG.E.EF.128 desc[UR4][R2.64], R12", "@P0 BRA 0x10"]


def code(loop, before="STL [R1], R6", after="HMMA.16816.F32.BF16 R4, R8, R12, R4"):
    """Returns a listing of a kernel with one instruction before a loop that starts at 0x10, one after it, and the jump that ends a kernel."""
    lines = [before, *loop, after, "EXIT", f"BRA {16 * (len(loop) + 3):#x}"]
    listed = "".join(f"        /*{16 * i:04x}*/   {line} ;     /* 0x00005b0000007b06 */\n" + " " * 60 + "/* 0x000e620000209000 */\n"
                     for i, line in enumerate(lines))
    return f"arch = sm_90\n\tcode for sm_90\n\t\tFunction : {MANGLED}\n\t.headerflags\t@\"EF_CUDA_SM90\"\n{listed}"


def kernel(loop=LOOP, resources=RESOURCES, **around):
    return sass.parse(resources, code(loop, **around))[0]


def faults(each, **expected):
    return sass.check([each], [sass.Expectation(r"sum<\w+>", **expected)])


@unittest.skipUnless(shutil.which("c++filt"), "no c++filt")
class MachineCode(unittest.TestCase):
    def test_a_kernel_is_read_from_the_listings(self):
        each = kernel()
        self.assertEqual((each.name, each.architecture, each.registers, each.stack), ("sum<float>", "sm_90", 40, 8))
        self.assertEqual([code.name for code in each.instructions][:3], ["STL", "LDG.E.128", "LDG.E.NA.128.CONSTANT"])
        self.assertEqual([len(loop) for loop in each.loops], [len(LOOP)], "the jump to itself at the end is no loop")
        self.assertEqual(faults(each, registers=40, instructions=("HMMA", "FADD"), loads=2, stores=1), [])

    def test_each_kind_of_fault_is_reported(self):
        start = "sum<float> for sm_90: "
        self.assertEqual(faults(kernel(), registers=39), [start + "40 registers, more than 39"])
        self.assertEqual(faults(kernel(), instructions=("IMMA",)), [start + "no IMMA instruction"])
        self.assertEqual(faults(kernel(), loads=3), [start + "at most 2 loads of 16 bytes at a time in a loop, fewer than 3"])
        self.assertEqual(faults(kernel(), stores=2), [start + "at most 1 stores of 16 bytes at a time in a loop, fewer than 2"])
        spilled = kernel(resources=RESOURCES.replace("STACK:8", "STACK:72"))
        self.assertEqual(faults(spilled), [start + "72 bytes of stack, more than 64"])
        self.assertEqual(faults(spilled, stack=72), [])
        local = kernel(["LDL.64 R4, [R1]", *LOOP])
        self.assertEqual(faults(local), [start + "1 accesses to local memory in loops, more than 0"])
        self.assertEqual(faults(local, local=1), [])

    def test_loads_into_one_register_are_not_in_flight_together(self):
        waiting = [line.replace("R8, desc", "R4, desc") for line in LOOP]
        self.assertEqual(len(faults(kernel(waiting), loads=2)), 1)

    def test_instructions_may_end_with_annotations_instead_of_semicolons(self):
        listed = re.sub(r" ;     .*", "          &wr=sb0 ?WAIT1_END_GROUP;", code(LOOP))
        each, = sass.parse(RESOURCES, listed)
        self.assertEqual(faults(each, loads=2, stores=1), [])

    def test_narrow_accesses_do_not_count(self):
        narrow = [line.replace(".128", "") for line in LOOP]
        self.assertEqual(len(faults(kernel(narrow), loads=1, stores=1)), 2)

    def test_an_entry_without_a_kernel_is_a_fault(self):
        self.assertEqual(sass.check([kernel()], [sass.Expectation("product<.*>")]),
                         ["the table expects a kernel product<.*>, but there is none"])

    def test_without_code_for_gpus_the_check_is_skipped(self):
        ran = subprocess.run([sys.executable, ROOT / "scripts/check/sass.py", shutil.which("true")], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 77)
        self.assertTrue(ran.stdout.startswith("skipped: "), ran.stdout)


class Messages(unittest.TestCase):
    def compile(self, messages, code=0):
        command = ["sh", "-c", f"echo out; echo '{messages}' >&2; exit {code}"]
        ran = subprocess.run([ROOT / "cmake/ptxas_messages.sh", *command], capture_output=True, text=True)
        self.assertEqual(ran.stdout, "out\n")
        return ran.returncode, ran.stderr

    def test_serialized_products_fail_and_all_else_passes_through(self):
        slow = "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized"
        code, messages = self.compile(slow)
        self.assertEqual(code, 1)
        self.assertTrue(messages.startswith(slow + "\nerror: "), messages)
        self.assertEqual(self.compile("ptxas info    : (C7521) other", 3), (3, "ptxas info    : (C7521) other\n"))


if __name__ == "__main__":
    unittest.main()
