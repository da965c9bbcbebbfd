#!/usr/bin/env python3
"""Checks that each ctest entry of this build (TESSERA_BUILD, TESSERA_CTEST) has a readable name, a label and a time limit, and that
tests that share a process are reported correctly (cmake/SuiteTests.cmake)."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class CtestEntries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        listing = subprocess.run([os.environ["TESSERA_CTEST"], "--test-dir", os.environ["TESSERA_BUILD"], "--show-only=json-v1"],
                                 check=True, capture_output=True, text=True).stdout
        cls.tests = {test["name"]: {each["name"]: each["value"] for each in test["properties"]}
                     for test in json.loads(listing)["tests"]}

    def test_every_name_is_plain_text(self):
        """No "40-byte object <07-BE ...>", which gtest prints for a parameter it cannot print, and no bare number."""
        self.assertGreater(len(self.tests), 100)
        self.assertEqual([name for name in self.tests if "#" in name or "byte object" in name], [])

    def test_every_test_has_a_label_and_a_time_limit(self):
        for name, properties in self.tests.items():
            with self.subTest(name):
                self.assertTrue(properties.get("LABELS"))
                self.assertGreaterEqual(properties.get("TIMEOUT", 0), 300)


class SuitesOfOneProcess(unittest.TestCase):
    """A script replaces the GoogleTest executable. In suite A a test in the middle fails, B ends the process, C reports an error after
    its last test, and D skips one of its tests."""
    EXECUTABLE = r"""#!/bin/sh
echo once >> "$0.$1.runs"
case $1 in
--gtest_list_tests) printf 'Running main() from gtest_main.cc\nA.\n  Good\n  GoodToo\n  Bad\nOn/B.\n  Good/x  # GetParam() = 1\n  Crash/x\n  After/x\nC.\n  Good\nD/0.  # TypeParam = int\n  Skipped\n  Good\n' ;;
--gtest_filter=A.*) printf '[ RUN      ] A.Good\nno line end[       OK ] A.Good (1 ms)\n[ RUN      ] A.Bad\nExpected: 1\n[  FAILED  ] A.Bad, where GetParam() = 1 (0 ms)\n[ RUN      ] A.GoodToo\n[       OK ] A.GoodToo (0 ms)\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] A.Bad\n'; exit 1 ;;
--gtest_filter=On/B.*) printf '[ RUN      ] On/B.Good/x\n[       OK ] On/B.Good/x (0 ms)\n[ RUN      ] On/B.Crash/x\nlast words\n'; kill -9 $$ ;;
--gtest_filter=C.*) printf '[ RUN      ] C.Good\n[       OK ] C.Good (0 ms)\nleaked\n'; exit 23 ;;
--gtest_filter=D/0.*) printf '[ RUN      ] D/0.Skipped\n[  SKIPPED ] D/0.Skipped (0 ms)\n[ RUN      ] D/0.Good\n[       OK ] D/0.Good (0 ms)\n[  PASSED  ] 1 test.\n[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] D/0.Skipped\n' ;;
esac
"""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.executable = self.folder / "fake_tests"
        self.executable.write_text(self.EXECUTABLE)
        self.executable.chmod(0o755)
        (self.folder / "CTestTestfile.cmake").write_text(
            f'set(name fake_tests)\nset(executable "{self.executable}")\nset(scripts "{ROOT}/tests")\nset(labels "unit")\n'
            f'set(timeout 300)\ninclude("{ROOT}/cmake/SuiteTests.cmake")\n')

    def ctest(self, *arguments):
        return subprocess.run([os.environ["TESSERA_CTEST"], "--test-dir", self.folder, *arguments], capture_output=True, text=True).stdout

    def ends(self, *arguments):
        return dict(re.findall(r"Test +#\d+: (\S+) \.*[ *]*(Passed|Failed|Skipped|Not Run)", self.ctest(*arguments)))

    def test_each_entry_has_the_result_from_its_suites_process(self):
        ends = self.ends()
        self.assertEqual({name: end for name, end in ends.items() if ":" in name},
                         {"fake_tests:A": "Passed", "fake_tests:On/B": "Failed", "fake_tests:C": "Failed", "fake_tests:D/0": "Passed"})
        self.assertEqual({name: end for name, end in ends.items() if not ":" in name},
                         {"A.Good": "Passed", "A.GoodToo": "Passed", "A.Bad": "Failed", "On/B.Good/x": "Not Run",
                          "On/B.Crash/x": "Not Run", "On/B.After/x": "Not Run", "C.Good": "Not Run", "D/0.Skipped": "Skipped",
                          "D/0.Good": "Passed"})

    def test_a_suite_runs_once_and_only_if_one_of_its_tests_is_selected(self):
        self.assertEqual(self.ends("-R", "^A"), {"fake_tests:A": "Passed", "A.Good": "Passed", "A.GoodToo": "Passed", "A.Bad": "Failed"})
        self.assertEqual(sorted(file.name for file in self.folder.glob("*.runs")),
                         ["fake_tests.--gtest_filter=A.*.runs", "fake_tests.--gtest_list_tests.runs"])
        self.assertEqual((self.folder / "fake_tests.--gtest_filter=A.*.runs").read_text(), "once\n")

    def test_output_of_a_failed_test_and_of_a_dead_process_is_shown(self):
        printed = self.ctest("--output-on-failure")
        self.assertIn("[ RUN      ] A.Bad\nExpected: 1\n[  FAILED  ] A.Bad", printed)
        self.assertIn("last words", printed)
        self.assertIn("leaked\nthe process ended with 23, and no test had failed", printed)
        self.assertNotIn("no line end", printed)

    def test_two_executables_may_have_suites_with_the_same_name(self):
        other = self.folder / "other_tests"
        other.write_text(self.EXECUTABLE.replace("Bad", "Worse"))
        other.chmod(0o755)
        listing = self.folder / "CTestTestfile.cmake"
        listing.write_text(listing.read_text() + listing.read_text().replace("fake_tests", "other_tests"))
        self.assertEqual(self.ends("-R", "^other_tests:A|^A.(Bad|Worse)"),
                         {"fake_tests:A": "Passed", "other_tests:A": "Passed", "A.Bad": "Failed", "A.Worse": "Failed"})

    def test_a_test_that_did_not_finish_fails(self):
        output = self.folder / "output"
        output.write_text("[ RUN      ] A.One\n[  FAILED  ] A.One (0 ms)\n[ RUN      ] A.Two\n")
        for test, said in (("A.Two", "the process ended within this test"), ("A.Three", "A.Three did not begin"), ("A.On", "A.On did not begin")):
            with self.subTest(test):
                done = subprocess.run([ROOT / "tests/test_result.sh", output, test], capture_output=True, text=True)
                self.assertEqual(done.returncode, 1)
                self.assertIn(said, done.stdout)


if __name__ == "__main__":
    unittest.main()
