#!/usr/bin/env python3
"""Checks scripts/gpu/check.sh without a GPU: the commands that a dry run lists, and the reports of runs in which scripts stand in for tools
and test programs."""
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STAGES = ["probe", "build", "test", "sanitize", "bench", "step", "train"]
PASSES = 'echo "| device | worst |"\necho "[  PASSED  ] 3 tests."\n'
SMI = 'case "$*" in *compute_cap*) echo 9.0 ;; *) echo "Stand-in GPU" ;; esac\n'


def dry_run(*arguments, **environment):
    """Returns the stages that a dry run lists, as {stage: (seconds, {piece: (seconds, command)})}."""
    text = subprocess.run([ROOT / "scripts/gpu/check.sh", "--dry-run", *arguments], check=True, capture_output=True, text=True,
                          env={**os.environ, **environment}).stdout
    stages = {}
    for line in text.splitlines():
        if found := re.fullmatch(r"(\w+): (\d+) s", line):
            pieces = {}
            stages[found[1]] = (int(found[2]), pieces)
        else:
            name, seconds, command = re.fullmatch(r"  (\w+) +(\d+) s  (.*)", line).groups()
            pieces[name] = (int(seconds), command)
    return stages


class DryRun(unittest.TestCase):
    def test_stages_end_within_ten_minutes_and_their_pieces_fit_into_them(self):
        stages = dry_run(TESSERA_GPU_BUNDLE="given")
        self.assertEqual(list(stages), STAGES)
        stages |= dry_run("speed")
        for name, (seconds, pieces) in stages.items():
            self.assertLess(seconds, 590, name)
            self.assertLessEqual(sum(limit for limit, _ in pieces.values()), seconds, name)
        for name, (_, pieces) in dry_run().items():
            self.assertEqual(bool(pieces), name != "train", name)  # only a bundle has a trainer

    def test_one_stage_may_be_named(self):
        self.assertEqual(list(dry_run("bench", "probe")), ["bench", "probe"])
        wrong = subprocess.run([ROOT / "scripts/gpu/check.sh", "benches"], capture_output=True, text=True)
        self.assertEqual(wrong.returncode, 2)
        self.assertEqual(wrong.stderr, "gpu_check: no stage benches; there are: probe build test sanitize bench step speed train\n")

    def test_files_in_the_commands_exist_in_the_repository(self):
        programs = (ROOT / "scripts/gpu/bundle.sh").read_text()
        sources = "\n".join(path.read_text() for path in ROOT.glob("tests/*/CMakeLists.txt"))
        for _, pieces in (dry_run(TESSERA_GPU_BUNDLE="given") | dry_run("speed", TESSERA_GPU_BUNDLE="given")).values():
            for _, command in pieces.values():
                for path in re.findall(r"(?<= )(?:scripts|tests|configs)/\S+", command):
                    self.assertTrue((ROOT / path).exists(), path)
                for program in re.findall(r"/gpu_bundle/tests/(\w+)", command):
                    self.assertIn(program, programs, "the bundle has it")
                    self.assertIn(f"tessera_test({program}", sources)

    def test_with_a_bundle_nothing_is_built(self):
        stages = dry_run(TESSERA_GPU_BUNDLE="given")
        self.assertEqual(stages["build"][1], {})
        for name in ("test", "sanitize", "train"):
            for _, command in stages[name][1].values():
                self.assertIn("/gpu_bundle/run.sh ", command)


    def test_speed_has_its_parts_in_the_order_of_their_importance(self):
        pieces = dry_run("speed", TESSERA_GPU_BUNDLE="given")["speed"][1]
        self.assertEqual(list(pieces), ["ceilings", "products", "correct", "tune", "token_contrast", "kernels", "other_kernels", "linear_map",
                                        "step_coco", "step_full", "ledger", "ledger_bfloat16", "update", "ncu"])


class Reports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "scripts/gpu").mkdir(parents=True)
        for name in ("check.sh", "cuda_toolkit.sh"):
            shutil.copy(ROOT / "scripts/gpu" / name, self.root / "scripts/gpu")
        self.write("tools/nvidia-smi", SMI)
        self.write("torch/lib/libtorch.so", "")
        self.write("bundle/gpu_bundle/commit", "abc123\n")
        shutil.copy(ROOT / "scripts/gpu/run_in_bundle.sh", self.root / "bundle/gpu_bundle/run.sh")
        for name in ("kernels_tests", "ops_tests", "models_tests", "step_tests", "nccl_tests"):
            self.program(name, PASSES)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if not name.startswith("tools/") else "#!/bin/sh\n" + text)
        path.chmod(0o755)

    def program(self, name, text):
        self.write(f"bundle/gpu_bundle/tests/{name}", "#!/bin/sh\n" + text)

    def check(self, *stages):
        """Runs stages with the bundle. Returns the exit code and the summary."""
        packed = self.root / "packed"
        packed.mkdir(exist_ok=True)
        with tarfile.open(packed / "gpu_bundle.tar.xz", "w:xz") as archive:
            archive.add(self.root / "bundle/gpu_bundle", "gpu_bundle")
        environment = {"PATH": f"{self.root}/tools:/usr/bin:/bin", "OUT": "../out", "TESSERA_GPU_BUNDLE": ".",
                       "CMAKE_PREFIX_PATH": str(self.root / "torch")}
        ran = subprocess.run([self.root / "scripts/gpu/check.sh", *stages], capture_output=True, text=True, env=environment, cwd=packed)
        self.output = ran.stdout + ran.stderr
        summary = self.root / "out/summary.md"
        return ran.returncode, summary.read_text() if summary.exists() else ""

    def archived(self):
        with tarfile.open(self.root / "out/report.tar.gz") as archive:
            return set(archive.getnames())

    def test_the_other_pieces_run_after_one_fails(self):
        self.program("ops_tests", '[ "$1" = --gtest_list_tests ] || { echo "a wrong number"; exit 3; }\n')
        self.program("step_tests", PASSES + 'echo "[  SKIPPED ] 1 test"\n')
        self.program("nccl_tests", 'echo "[  PASSED  ] 0 tests."\n')
        code, summary = self.check("build", "test")
        self.assertEqual(code, 1, self.output)
        for row in (r"build \| bundle \| nothing to build: the bundle is of commit abc123", r"test \| kernels \| passed",
                    r"test \| operators \| \*\*failed\*\* with exit code 3", r"test \| attention \| passed",
                    r"test \| steps \| \*\*failed\*\*: no test ran, or some were skipped",
                    r"test \| nccl \| \*\*failed\*\*: no test ran"):
            self.assertRegex(summary, r"\| " + row)
        self.assertIn("a wrong number", summary)
        self.assertIn("Tessera on Stand-in GPU", summary)
        self.assertIn("| device | worst |", summary)
        self.assertIn("report/test/kernels.log", self.archived())
        self.assertRegex(self.output, r"FAILED: test/operators test/steps test/nccl")

    def test_one_summary_collects_the_stages_of_several_calls(self):
        self.check("build")
        code, summary = self.check("sanitize")
        self.assertEqual(code, 0, self.output)
        self.assertIn("| build | bundle |", summary)
        self.assertIn("| sanitize | compute-sanitizer | not available: not on the PATH | 0 |", summary)
        self.assertIn("report/build/rows.md", self.archived())

    def test_a_working_tool_is_used_and_a_broken_one_is_reported(self):
        self.write("tools/compute-sanitizer", 'case "$*" in *racecheck*) echo "a race"; exit 9 ;; esac\n')
        code, summary = self.check("sanitize")
        self.assertEqual(code, 1, self.output)
        self.assertIn("| sanitize | memcheck | passed |", summary)
        self.assertIn("| sanitize | racecheck | **failed** with exit code 9 |", summary)
        self.assertIn("a race", summary)
        shutil.rmtree(self.root / "build-gpu/tools")
        self.write("tools/compute-sanitizer", 'echo "Device not supported"; exit 1\n')
        code, summary = self.check("sanitize")
        self.assertEqual(code, 0, self.output)
        self.assertIn("not available: Device not supported", summary)
        self.assertNotIn("a race", summary, "output of the previous call")

    def test_the_summary_is_cut_and_the_archive_is_complete(self):
        self.program("models_tests", 'i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); echo "| row $i | of a long table |"; done\n' + PASSES)
        code, summary = self.check("test")
        self.assertLess(len(summary), 12000)
        self.assertIn("| row 1 |", summary)
        self.assertIn("(The rest is in the archive.)", summary)
        with tarfile.open(self.root / "out/report.tar.gz") as archive:
            self.assertIn(b"| row 2000 |", archive.extractfile("report/test/attention.log").read())

    def test_speed_writes_each_result_at_once_and_skips_what_programs_do_not_offer(self):
        for name in ("bin/tessera-bench", "tests/kernels_tests", "tests/ops_tests"):
            self.write(f"bundle/gpu_bundle/{name}", "#!/bin/sh\n" + PASSES)
        self.write("tools/python3", 'cp out/summary.md "seen.$$" 2>/dev/null; echo "| operator | ms |"\n')
        code, summary = self.check("speed")
        self.assertEqual(code, 0, self.output)
        for row in (r"ceilings \| passed", r"correct \| passed", r"tune \| not available: tessera-bench has no command tune",
                    r"step_full \| passed", r"ledger \| passed", r"ledger_bfloat16 \| passed", r"ncu \| not available"):
            self.assertRegex(summary, r"\| speed \| " + row)
        written = list(self.root.rglob("residual_bfloat16.yaml"))
        self.assertTrue(written and all("residual: bfloat16" in path.read_text() for path in written), written)
        seen = [path.read_text() for path in self.root.glob("seen.*")]
        self.assertTrue(any("| speed | correct | passed |" in text and "| speed | ncu |" not in text for text in seen), seen)

        self.write("bundle/gpu_bundle/bin/tessera-bench", "#!/bin/sh\necho '  tune  choose tiles'\n")
        code, summary = self.check("speed")
        self.assertRegex(summary, r"\| speed \| tune \| passed")

    def test_a_missing_gpu_or_libtorch_is_reported_in_one_line(self):
        (self.root / "torch/lib/libtorch.so").unlink()
        self.assertEqual(self.check("probe")[0], 2)
        self.assertEqual(self.output, "gpu_check: no LibTorch: install torch for python3, or set CMAKE_PREFIX_PATH to its folder\n")
        (self.root / "tools/nvidia-smi").unlink()
        self.assertEqual(self.check("probe")[0], 2)
        self.assertEqual(self.output, "gpu_check: no nvidia-smi on the PATH: this is for machines with an NVIDIA GPU\n")


class Toolkit(unittest.TestCase):
    def test_a_compiler_is_joined_with_the_headers_and_libraries_of_wheels(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("system/bin/nvcc", "system/nvvm/bin/cicc", "system/include/cuda.h", "system/lib64/libcudart.so",
                         "site/nvidia/cu13/include/cuda.h", "site/nvidia/cu13/include/cublas_v2.h", "site/nvidia/cu13/lib/libcublas.so.13",
                         "site/nvidia/nccl/include/nccl.h", "site/nvidia/cudnn/include/cudnn.h"):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(name)
            join = f". '{ROOT}/scripts/gpu/cuda_toolkit.sh' && joined_toolkit '{root}/system' '{root}/site' 13 '{root}/joined'"
            for _ in range(2):  # the second time there is nothing to do
                subprocess.run(["bash", "-euc", join], check=True)
            for name, origin in {"bin/nvcc": "system/bin/nvcc", "nvvm/bin/cicc": "system/nvvm/bin/cicc",
                                 "include/cuda.h": "system/include/cuda.h", "include/cublas_v2.h": "site/nvidia/cu13/include/cublas_v2.h",
                                 "include/nccl.h": "site/nvidia/nccl/include/nccl.h", "include/cudnn.h": "site/nvidia/cudnn/include/cudnn.h",
                                 "lib64/libcudart.so": "system/lib64/libcudart.so",
                                 "lib/libcublas.so": "site/nvidia/cu13/lib/libcublas.so.13"}.items():
                self.assertEqual((root / "joined" / name).read_text(), origin)
            self.assertEqual((root / "system/include/cuda.h").read_text(), "system/include/cuda.h")


class Shell(unittest.TestCase):
    @unittest.skipUnless(shutil.which("shellcheck"), "no shellcheck")
    def test_scripts_have_no_known_pitfalls(self):
        names = ("gpu/check.sh", "gpu/bundle.sh", "gpu/run_in_bundle.sh", "gpu/cuda_toolkit.sh", "setup.sh")
        found = subprocess.run(["shellcheck", "-x", *(f"scripts/{name}" for name in names)], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(found.stdout, "")


if __name__ == "__main__":
    unittest.main()
