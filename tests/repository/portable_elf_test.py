"""Runs scripts/portable_elf.py on libraries that the test compiles. Exits with code 77 (ctest: skipped) if g++ or objdump is missing."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts/portable_elf.py"
WAITS = """#include <condition_variable>
extern "C" int nobody_has_this();
extern "C" int call_if(bool asked) { return asked ? nobody_has_this() : 7; }
void wait(std::condition_variable& c, std::unique_lock<std::mutex>& l) { c.wait(l); }
"""


def call(*arguments):
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], check=False, capture_output=True, text=True)


class PortableElf(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.library = self.folder / "waits.so"
        (self.folder / "waits.cpp").write_text(WAITS)
        subprocess.run(["g++", "-shared", "-fPIC", "-o", self.library, self.folder / "waits.cpp"], check=True)

    def test_a_moved_symbol_is_linked_with_its_old_version(self):
        before = call("check", self.library)
        if before.returncode == 0:
            self.skipTest("this libstdc++ has only the old version")
        self.assertIn("_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE needs GLIBCXX_3.4.30", before.stderr)
        self.assertEqual(call("age", self.library).returncode, 0)
        self.assertEqual((call("check", self.library).returncode, call("check", self.library).stderr), (0, ""))
        symbols = subprocess.run(["objdump", "-T", self.library], check=True, capture_output=True, text=True).stdout
        self.assertRegex(symbols, r"GLIBCXX_3\.4\.11\) +_ZNSt18condition_variable4wait")

    def test_a_weakened_missing_symbol_does_not_stop_the_loader(self):
        use = f"import ctypes; print(ctypes.CDLL({str(self.library)!r}).call_if(False))"
        lost = subprocess.run([sys.executable, "-c", use], check=False, capture_output=True, text=True)
        self.assertIn("nobody_has_this", lost.stderr)
        (self.folder / "names").write_text("nobody_has_this\n")
        self.assertEqual(call("weaken", self.library, self.folder / "names").returncode, 0)
        found = subprocess.run([sys.executable, "-c", use], check=True, capture_output=True, text=True)
        self.assertEqual(found.stdout, "7\n")

    def test_a_file_that_is_not_a_library_is_reported_in_one_line(self):
        (self.folder / "text").write_text("no library")
        self.assertRegex(call("check", self.folder / "text").stderr, r"^portable_elf\.py: .*text is not a little-endian 64-bit ELF file\n$")


if __name__ == "__main__":
    if not all(map(shutil.which, ("g++", "objdump"))):
        sys.exit(77)
    unittest.main()
