#!/usr/bin/env python3
"""Checks what a release needs: wheel and tarball have the right files, only CMakeLists.txt states the version, CHANGELOG.md has a section
for it, and workflows are valid YAML whose shell commands are valid and whose scripts exist."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import types
import unittest

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TRAINER = pathlib.Path(os.environ.get("TESSERA_BUILD", ROOT / "build")) / "bin/trainer"
VERSION = re.search(r"^project\(tessera VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TEXTS = (".cff", ".cfg", ".cmake", ".cpp", ".h", ".in", ".json", ".py", ".sh", ".toml", ".txt", ".yml")


def commands(workflow):
    """Yields each `run` command of a workflow, with GitHub's ${{ }} expressions replaced by a plain word."""
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        for step in job.get("steps", ()):
            if "run" in step:
                yield re.sub(r"\$\{\{.*?\}\}", "x", step["run"])


class Release(unittest.TestCase):
    def test_the_change_log_has_a_section_for_the_version(self):
        self.assertRegex((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), rf"(?m)^## {re.escape(VERSION)}$")

    def test_the_version_is_stated_in_one_place(self):
        stated = re.compile(rf"""version\W{{0,4}}["' =:]+{re.escape(VERSION)}\b""", re.I)
        files = [file for folder in ("cmake", "python", "scripts", "src", "tools") for file in (ROOT / folder).rglob("*")]
        for file in files + [file for file in ROOT.iterdir() if file.name != "CMakeLists.txt"]:
            if file.is_file() and file.suffix in TEXTS:
                with self.subTest(file=str(file.relative_to(ROOT))):
                    self.assertIsNone(stated.search(file.read_text(encoding="utf-8", errors="replace")), "read it from CMakeLists.txt")

    @unittest.skipUnless(yaml, "no PyYAML")
    def test_commands_of_workflows_are_valid_shell(self):
        self.assertGreater(len(WORKFLOWS), 1)
        for workflow in WORKFLOWS:
            for command in commands(workflow):
                with self.subTest(workflow=workflow.name, command=command):
                    done = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipUnless(TRAINER.exists(), "the programs are not built")
    def test_wheel_tarball_and_image_are_tried_with_runs_that_the_trainer_accepts(self):
        texts = [(ROOT / name).read_text() for name in (".github/workflows/release.yml", "Dockerfile")]
        runs = [run for text in texts for run in re.findall(r"bin/trainer (--config [^#\n]*)", text)]
        self.assertEqual(len(runs), 3)
        for run in runs:
            with self.subTest(run=run):
                done = subprocess.run([TRAINER, *shlex.split(run), "--print-config"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipUnless(yaml, "no PyYAML")
    def test_the_wheel_is_built_on_debian_12(self):
        jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"].values()
        built = [job for job in jobs if any("build_wheel.sh" in step.get("run", "") for step in job.get("steps", ()))]
        self.assertEqual([job["container"]["image"] for job in built], ["debian:12"])

    def test_scripts_of_workflows_exist(self):
        for workflow in WORKFLOWS:
            for script in re.findall(r"(?<![\w/])((?:scripts|\.ci)/[\w.]+)", workflow.read_text()):
                with self.subTest(workflow=workflow.name):
                    self.assertTrue((ROOT / script).exists(), script)


class Wheel(unittest.TestCase):
    def test_answers_find_package_with_its_version_and_can_log_to_wandb(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        import assemble_wheel
        with tempfile.TemporaryDirectory() as folder:
            build, package = pathlib.Path(folder) / "build", pathlib.Path(folder) / "tessera"
            for name in ("TesseraConfigVersion.cmake", "lib/libtessera_ops.so", "wheel/bin/trainer", "wheel/libexec/tessera/trainer",
                         "wheel/lib/libtessera.so"):
                (build / name).parent.mkdir(parents=True, exist_ok=True)
                (build / name).touch()
            assemble_wheel.fill(types.SimpleNamespace(folder=package, binaries=list, carried={}), build)
            for name in ("lib/cmake/Tessera/TesseraConfigVersion.cmake", "share/tessera/scripts/log_to_wandb.py"):
                self.assertTrue((package / name).exists(), name)


    def test_states_its_series_and_the_licenses_of_what_it_has(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        sys.path.insert(0, str(ROOT / "python"))
        import assemble_wheel
        from tessera import _version
        name = _version.wheel_name("2.15")
        self.assertEqual(name, f"tessera-{VERSION}+torch2.15-py3-none-manylinux_2_34_x86_64.whl")
        with tempfile.TemporaryDirectory() as folder:
            dist = pathlib.Path(folder)
            (dist / "licenses").mkdir()
            (dist / "licenses/LICENSE").touch()
            assemble_wheel.metadata(dist, f"{VERSION}+torch2.15", "2.15", "py3-none-manylinux_2_34_x86_64")
            written = (dist / "METADATA").read_text(encoding="utf-8")
        for line in (f"Version: {VERSION}+torch2.15", "License-File: LICENSE", "Requires-Dist: torch >=2.15, <2.16"):
            self.assertIn(f"{line}\n", written)
        self.assertNotRegex(written, r"\]\((?!\w+:)")  # a relative link leads nowhere on an index's page

    def test_every_series_has_one_version_of_pytorch(self):
        def chosen(series):
            return subprocess.run(["bash", "-c", ". scripts/torch_series.sh && echo $torch_version $build_suffix"], cwd=ROOT,
                                  env={**os.environ, "TESSERA_TORCH": series}, capture_output=True, text=True)
        sys.path.insert(0, str(ROOT / "python"))
        from tessera import _version
        for series in _version.SERIES:
            suffix = "" if series == _version.SERIES[0] else f" -torch{series}"
            self.assertRegex(chosen(series).stdout, rf"^{re.escape(series)}\.\d+{re.escape(suffix)}$")
        refused = chosen("2.10")
        self.assertEqual((refused.returncode, refused.stdout), (2, ""))
        self.assertIn("TESSERA_TORCH is 2.10, expected a series from 2.11 to 2.15", refused.stderr)


class Tarball(unittest.TestCase):
    def test_is_in_the_given_folder_and_has_each_library_of_nvidia_once(self):
        with tempfile.TemporaryDirectory() as folder:
            clone, here = pathlib.Path(folder) / "clone", pathlib.Path(folder) / "here"
            for name, text in {"CMakeLists.txt": "project(tessera VERSION 1.2.3", "scripts/build_wheel.sh": "#!/bin/sh\n",
                               "build/CMakeCache.txt": f"Torch_DIR:PATH={folder}/site/torch/share/cmake/Torch\n",
                               "build/wheel/tools/bin/patchelf": "#!/bin/sh\n", "build/wheel/stage/tessera/bin/trainer": "",
                               "build/wheel/stage/tessera-1.2.3.dist-info/licenses/LICENSE": "", "../site/torch/lib/libgomp.so.1": "",
                               "../site/nvidia/cu13/lib/libcublas.so.13": "a library", "../here/README": ""}.items():
                (clone / name).parent.mkdir(parents=True, exist_ok=True)
                (clone / name).write_text(text)
                (clone / name).chmod(0o755)
            (clone / "../site/nvidia/cu13/lib/libcublas.so").symlink_to("libcublas.so.13")
            for script in ("package.sh", "torch_series.sh"):
                shutil.copy(ROOT / "scripts" / script, clone / "scripts")
            subprocess.run([clone / "scripts/package.sh", "dist"], check=True, capture_output=True, cwd=here)
            with tarfile.open(here / "dist/tessera-1.2.3-x86_64.tar.gz") as archive:
                libraries = [name for name in archive.getnames() if "libcublas" in name]
            self.assertEqual(libraries, ["tessera-1.2.3/nvidia/cu13/lib/libcublas.so.13"])


if __name__ == "__main__":
    unittest.main()
