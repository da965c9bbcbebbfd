#!/usr/bin/env python3
"""What ctest knows of each test of this build (TESSERA_BUILD, TESSERA_CTEST): a name that a person can read, a label and a time limit."""
import json
import os
import subprocess
import unittest


class CtestEntries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        listing = subprocess.run([os.environ["TESSERA_CTEST"], "--test-dir", os.environ["TESSERA_BUILD"], "--show-only=json-v1"],
                                 check=True, capture_output=True, text=True).stdout
        cls.tests = {test["name"]: {each["name"]: each["value"] for each in test["properties"]}
                     for test in json.loads(listing)["tests"]}

    def test_every_name_is_plain_text(self):
        """No "40-byte object <07-BE ...>" of a parameter that gtest cannot print, and no bare number."""
        self.assertGreater(len(self.tests), 100)
        self.assertEqual([name for name in self.tests if "#" in name or "byte object" in name], [])

    def test_every_test_has_a_label_and_a_time_limit(self):
        for name, properties in self.tests.items():
            with self.subTest(name):
                self.assertTrue(properties.get("LABELS"))
                self.assertGreaterEqual(properties.get("TIMEOUT", 0), 300)


if __name__ == "__main__":
    unittest.main()
