#!/usr/bin/env python3
"""Runs scripts/quickstart.sh with dummy scripts in place of the setup and the programs. The dummies only write the expected files."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"
EVALUATE = '#!/bin/sh\nwhile [ "$1" != --out ]; do shift; done\nmkdir -p "$2" && touch "$2/report.html"\n'


class Quickstart(unittest.TestCase):
    def report_of(self, root, *arguments):
        for name, text in {"scripts/setup.sh": "#!/bin/sh\n", "build/bin/tessera-data": "#!/bin/sh\n",
                           "build/bin/trainer": "#!/bin/sh\n", "build/bin/evaluate": EVALUATE}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
            (root / name).chmod(0o755)
        shutil.copy(SCRIPTS / "quickstart.sh", root / "scripts")
        (root / "elsewhere").mkdir(exist_ok=True)
        output = subprocess.run([root / "scripts/quickstart.sh", *arguments], check=True, capture_output=True, text=True,
                                cwd=root / "elsewhere").stdout
        return pathlib.Path(re.search(r"^report with images: (.*)$", output, re.M).group(1))

    def test_the_printed_report_path_exists(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve() / "a clone"
            absolute = root / "another" / "run"
            for arguments, expected in {(): root / "runs/quickstart", ("runs/mine",): root / "elsewhere/runs/mine", (absolute,): absolute}.items():
                with self.subTest(arguments):
                    report = self.report_of(root, *arguments)
                    self.assertEqual(report, expected / "evaluation/report.html")
                    self.assertTrue(report.is_file())


if __name__ == "__main__":
    unittest.main()
