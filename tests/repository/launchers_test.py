#!/usr/bin/env python3
"""Checks the files and scripts that start training on several machines: what they run, with stand-ins for the launchers, and with the
launchers' own parsers where these are installed (scripts/setup.sh --launchers)."""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/check"))
from servers import free_ports  # noqa: E402

LAUNCH = ROOT / "scripts/launch"
TRAINER = pathlib.Path(os.environ.get("TESSERA_BUILD", ROOT / "build")) / "bin/trainer"
needs_trainer = unittest.skipUnless(TRAINER.exists(), "the programs are not built")


def needs_package(name):
    return unittest.skipUnless(importlib.util.find_spec(name), f"the Python package {name} is not installed (scripts/setup.sh --launchers)")


class Launchers(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "HOME": str(self.folder),
                            "SLURM_SUBMIT_DIR": "/shared", "SLURM_JOB_ID": "7"}
        for name in ("TESSERA_TRAINER", "TESSERA_IMAGE", "TESSERA_MOUNTS"):
            self.environment.pop(name, None)

    def stand_in(self, name, script):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def run_script(self, *command, **environment):
        return subprocess.run(command, capture_output=True, text=True, check=False, env={**self.environment, **environment})

    def slurm(self, srun, **environment):
        self.stand_in("srun", srun)
        self.stand_in("scontrol", 'echo "scontrol $*"')
        return self.run_script(ROOT / "scripts/slurm_train.sh", "shapes_clip", "--set", "seed=1", **environment)

    def test_slurm_script_runs_the_trainer_with_and_without_containers(self):
        options, arguments = "--kill-on-bad-exit=1 --wait=60 ", " --config shapes_clip --resume auto --set seed=1"
        for environment, expected in [
                ({}, "/shared/build/bin/trainer"),
                ({"TESSERA_IMAGE": "a/b.sif"}, "apptainer exec --nv --bind /shared --pwd /shared a/b.sif trainer"),
                ({"TESSERA_IMAGE": "a/b.sif", "TESSERA_MOUNTS": "/shared,/data", "TESSERA_TRAINER": "/opt/trainer"},
                 "apptainer exec --nv --bind /shared,/data --pwd /shared a/b.sif /opt/trainer"),
                ({"TESSERA_IMAGE": "registry#tessera", "TESSERA_MOUNTS": "/shared,/data"},
                 "--container-image registry#tessera --container-mounts /shared:/shared,/data:/data --container-workdir /shared trainer")]:
            with self.subTest(**environment):
                out = self.slurm('echo "$@"', **environment)
                self.assertEqual(out.stdout, options + expected + arguments + "\nfinished\n")

    def test_slurm_script_requeues_a_run_that_has_saved_its_state(self):
        for code, requeued in ((138, True), (143, True), (1, False)):
            with self.subTest(code=code):
                out = self.slurm(f"exit {code}")
                self.assertEqual("scontrol requeue 7" in out.stdout, requeued)
                self.assertEqual(out.returncode, 0 if requeued else code)

    @unittest.skipUnless(shutil.which("sbatch"), "sbatch is not installed (Debian: slurm-client)")
    def test_sbatch_accepts_the_options_in_the_script(self):
        (self.folder / "slurm.conf").write_text("ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nAuthType=auth/none\nMessageTimeout=1\n"
                                                "NodeName=n[1-4] Gres=gpu:8\nGresTypes=gpu\nPartitionName=p Nodes=ALL Default=YES\n")
        command = [shutil.which("sbatch"), "--test-only", "--nodes", "2-4", ROOT / "scripts/slurm_train.sh", "shapes_clip"]
        out = self.run_script(*command, SLURM_CONF=str(self.folder / "slurm.conf"))
        for complaint in ("unrecognized option", "nvalid option", "nvalid --", "rror parsing"):
            self.assertNotIn(complaint, out.stderr)

    def test_torchrun_script_passes_an_elastic_number_of_machines_on(self):
        self.stand_in("torchrun", 'echo "$@"')
        out = self.run_script(ROOT / "scripts/torchrun_train.sh", "--nodes", "2:4", "--gpus", "8", "shapes_clip", "--set", "training.global_batch=64")
        self.assertIn("--nnodes 2:4 --nproc-per-node 8", out.stdout)
        self.assertIn("--config shapes_clip --resume auto --set training.global_batch=64", out.stdout)

    def check_batch(self, command, folder="folder: /data/runs/sparc_b16", **environment):
        """Expects the resolved configuration of a run of SPARC on 32 or 16 ranks."""
        out = self.run_script(*command, **environment)
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertIn("global_batch: 16384", out.stdout)
        self.assertIn(folder, out.stdout)
        return int(re.search(r"\n    batch_size: (\d+)", out.stdout)[1])

    @needs_trainer
    def test_train_job_starts_the_ranks_of_its_nodes(self):
        text = (LAUNCH / "kubeflow_trainjob.yaml").read_text(encoding="utf-8")
        nodes = re.search(r"numNodes: (\d+)", text)[1]
        self.assertEqual(re.search(r"command: \[(.*)\]", text)[1], "trainer")
        arguments = re.findall(r"^      - (--.*)$", text, re.M)
        self.assertIn(f"--nproc={re.search(r'numProcPerNode: (.*)', text)[1]}", arguments)
        batch = self.check_batch([TRAINER, *arguments, "--print-config"], PET_NNODES=nodes, PET_NODE_RANK="1", PET_MASTER_ADDR="x", PET_MASTER_PORT="1")
        self.assertEqual(batch, 512)

    @needs_trainer
    def test_sky_pilot_task_starts_the_ranks_of_its_nodes(self):
        text = (LAUNCH / "skypilot.yaml").read_text(encoding="utf-8")
        self.stand_in("tessera/bin/trainer", f'exec {TRAINER} "$@" --print-config')
        script = textwrap.dedent(text[text.index("run: |\n") + len("run: |\n"):])
        batch = self.check_batch(["bash", "-euc", script], folder="mirror: \"s3://your-bucket/runs/sparc_b16\"", RUN="sparc_b16", CONFIG="sparc_vitb16", GLOBAL_BATCH="16384", SKYPILOT_NUM_NODES="2",
                                 SKYPILOT_NODE_RANK="1", SKYPILOT_NODE_IPS="10.0.0.1\n10.0.0.2", SKYPILOT_NUM_GPUS_PER_NODE="8")
        self.assertEqual(batch, 1024)

    @needs_trainer
    def test_two_nodes_train_together(self):
        port = free_ports(1)[0]
        settings = [f"run.folder={self.folder}/run", "training.steps=2", "training.global_batch=16", "data.train.size=64", "training.threads=1",
                    "evaluation.tasks=[]", "schedule.warmup_steps=0", "log.tensorboard=false"]
        nodes = [subprocess.Popen([TRAINER, "--nproc", "2", "--config", "shapes_clip", "--set", *settings], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True,
                                  env={**os.environ, "PET_NNODES": "2", "PET_NODE_RANK": str(node), "PET_MASTER_ADDR": "127.0.0.1",
                                       "PET_MASTER_PORT": str(port)}) for node in (0, 1)]
        texts = [node.communicate()[0] for node in nodes]
        self.assertEqual([node.returncode for node in nodes], [0, 0], texts)
        self.assertIn("16 samples per step (4 x 1 x 4 ranks)", texts[0])
        self.assertNotIn("samples per step", texts[1])

    @needs_package("kubeflow_trainer_api")
    @needs_package("yaml")
    def test_train_job_has_only_fields_that_kubeflow_knows(self):
        import yaml
        from kubeflow_trainer_api import models
        given = yaml.safe_load((LAUNCH / "kubeflow_trainjob.yaml").read_text(encoding="utf-8"))
        self.assertEqual(models.TrainerV1alpha1TrainJob.from_dict(given).to_dict(), given)

    @needs_package("sky")
    def test_sky_pilot_reads_the_task(self):
        import sky
        task = sky.Task.from_yaml(str(LAUNCH / "skypilot.yaml"))
        self.assertEqual(task.num_nodes, 2)
        self.assertEqual([resources.accelerators for resources in task.resources], [{"H100": 8}])


if __name__ == "__main__":
    unittest.main()
