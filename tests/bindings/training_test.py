"""Tests training in Python: objectives, blocks and docs/examples/python. ctest runs it with the Python of LibTorch's environment:

  python tests/bindings/training_test.py build/lib/libtessera.so build/bin

Exits with code 77, which ctest reports as skipped, if torch cannot be imported.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ImportError as error:
    print(f"skipped: {sys.executable} cannot import torch ({error})")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = pathlib.Path(sys.argv.pop(2)).resolve()
os.environ["TESSERA_LIBRARY"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(ROOT / "python"))
import tessera  # noqa: E402
from tessera import plain_model  # noqa: E402

SHAPES = {"name": "shapes", "split": "train", "size": 200, "negatives": False, "partial_captions": 0.0}
EXAMPLES = ROOT / "docs/examples/python"
STEPS = 6


def run(*command, **environment):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        raise AssertionError(f"{command[:4]}: {done.stderr[-1500:]}")
    return done.stdout


def torchrun(*command):
    return run(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, *command, PYTHONPATH=str(ROOT / "python"))


def train(folder, *settings, ranks=1):
    run(PROGRAMS / "trainer", "--config", ROOT / "configs/shapes/clip.yaml", "--nproc", ranks, "--set", f"run.folder={folder}",
        "training.device=cpu", "log.every_steps=1", "evaluation.tasks=[]", f"data.train={json.dumps(SHAPES)}", "data.validation=null",
        "model.image.encoder.layers=2", *settings)


def losses(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        train(cls.folder / "start", "training.steps=1", "schedule.warmup_steps=0", "data.loader.batch_size=16")
        cls.start = next(cls.folder.glob("start/checkpoints/*/model.safetensors"))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def parts(self, objective, blocks=False, **settings):
        model = tessera.load(self.start, "cpu", blocks=blocks).train()
        made = tessera.objectives.Objective(objective, model, **settings)
        return model, made, tessera.Loader(SHAPES, model=model, objective=made, batch_size=8, seed=3)

    def example(self, out, *more, steps=STEPS, objective="clip"):
        torchrun(EXAMPLES / "train_fsdp2.py", "--model", self.start, "--source", json.dumps(SHAPES), "--out", self.folder / out, "--objective",
                 json.dumps({"name": objective}), "--steps", steps, "--batch-size", 8, "--lr", 1e-3, "--weight-decay", 0.1, "--clip-norm", 1,
                 "--warmup-steps", 2, "--loader", '{"augmentation": {"scale": [0.9, 1.0]}}', *more)
        return losses(self.folder / out)

    def test_two_ranks_with_fsdp2_have_the_losses_of_the_trainer(self):
        for objective in ("clip", "sparc"):
            with self.subTest(objective=objective):
                train(self.folder / f"trainer_{objective}", f"objective={{name: {objective}}}", f"start.weights={self.start}",
                      f"training.steps={STEPS}", "schedule.warmup_steps=2", "data.loader.batch_size=8", ranks=2)
                expected = losses(self.folder / f"trainer_{objective}")
                found = self.example(f"fsdp2_{objective}", objective=objective)
                self.assertEqual((len(found), len(expected)), (STEPS, STEPS))
                print(objective, "losses differ by at most", max(abs(a - b) for a, b in zip(found, expected)))
                torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), atol=1e-5, rtol=0)
                self.assertGreater(abs(found[0] - found[-1]), 1e-3)
                model = tessera.load(self.folder / f"fsdp2_{objective}/model.safetensors", "cpu")
                trained = tessera.load(self.folder / f"trainer_{objective}", "cpu")
                torch.testing.assert_close(model.logit_scale, trained.logit_scale, atol=1e-5, rtol=0)
                torch.testing.assert_close(model.encode_text("a red circle"), trained.encode_text("a red circle"), atol=1e-4, rtol=0)

    def test_training_continues_from_a_checkpoint_of_dcp(self):
        whole = self.example("whole", "--checkpoint-steps", 2, steps=4)
        for name in ("step_0000004", "../model.safetensors"):
            path = self.folder / "whole/checkpoints" / name
            run("rm", "-r", path)
        (self.folder / "whole/metrics.jsonl").unlink()
        self.assertEqual(self.example("whole", steps=4), whole[2:])

    def test_blocks_compute_the_features_and_gradients_of_the_compiled_model(self):
        for objective in ("clip", "sparc", "filip"):
            compiled, loss, loader = self.parts(objective)
            blocks, other_loss, _ = self.parts(objective, blocks=True)
            batch = loader.next()
            ours, theirs = loss(compiled.features(batch, loss)), other_loss(blocks(batch, other_loss))
            self.assertEqual(set(ours.terms), set(theirs.terms))
            torch.testing.assert_close(ours.total, theirs.total, atol=1e-5, rtol=0)
            ours.total.backward()
            theirs.total.backward()
            expected = {name: p.grad for name, p in compiled.named_parameters() if p.grad is not None}
            found = {name: p.grad for name, p in [*blocks.named_parameters(), *other_loss.named_parameters()] if p.grad is not None}
            self.assertEqual(set(found), set(expected), objective)
            for name, gradient in expected.items():
                torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")

    def test_blocks_are_the_transformer_blocks_of_both_towers(self):
        blocks = self.parts("clip", blocks=True)[0]
        self.assertEqual(len(list(blocks.blocks())), 4)
        seen = []
        for block in blocks.blocks():
            block.register_forward_hook(lambda module, inputs, output: seen.append(module))
        blocks.encode_image(torch.zeros(1, 3, 64, 64))
        self.assertEqual(seen, list(blocks.blocks())[:2] if seen[0] is next(blocks.blocks()) else list(blocks.blocks())[2:])

    def test_an_objective_starts_from_the_models_weights_and_is_saved_with_it(self):
        model, objective, _ = self.parts("clip")
        self.assertIs(objective._bound.tensors().get("logit_scale"), None)  # the model's own is shared
        blocks, objective, _ = self.parts("clip", blocks=True)
        torch.testing.assert_close(objective.logit_scale.detach(), model.logit_scale.detach(), atol=0, rtol=0)
        with torch.no_grad():
            objective.logit_scale.fill_(9.0)
        objective.after_step()
        self.assertAlmostEqual(objective.logit_scale.item(), 4.605170185988092, places=6)  # log 100
        blocks.save(self.folder / "saved.safetensors", objective)
        saved, metadata = plain_model.read_safetensors(self.folder / "saved.safetensors")
        before, expected = plain_model.read_safetensors(self.start)
        self.assertEqual((metadata, set(saved)), (expected, set(before)))
        self.assertAlmostEqual(saved["logit_scale"].item(), 4.605170185988092, places=6)

    def test_an_objective_with_parts_of_its_own_is_trained(self):
        model, objective, loader = self.parts("siglip", blocks=True)
        self.assertEqual(set(objective.state_dict()), {"logit_scale", "logit_bias"})
        objective(model(loader.next(), objective)).total.backward()
        self.assertGreater(objective.logit_bias.grad.abs().item(), 0)
        objective.load_state_dict({name: tensor + 1 for name, tensor in objective.state_dict().items()})
        self.assertAlmostEqual(objective.weights()["logit_bias"].item(), objective.logit_bias.item())

    def test_an_objective_and_a_task_in_python_train_a_model(self):
        out = run(sys.executable, EXAMPLES / "own_objective.py", "--model", self.start, "--steps", 4, PYTHONPATH=str(ROOT / "python"))
        self.assertRegex(out, r"(?m)^step 4: loss \d+\.\d+, retrieval \d\.\d+$")

        def first_losses(out):
            return [float(line.split()[3].rstrip(",")) for line in out.splitlines() if line.startswith("step ")]
        two = torchrun(EXAMPLES / "own_objective.py", "--model", self.start, "--steps", 3, "--batch-size", 8)
        torch.testing.assert_close(torch.tensor(first_losses(two)), torch.tensor(first_losses(out)[:3]), atol=1e-4, rtol=0)

    def test_mistakes_are_reported_in_one_line(self):
        model, objective, loader = self.parts("clip")
        batch = loader.next()
        make = tessera.objectives.Objective
        for use, said in ((lambda: make("clop", model), "did you mean clip"),
                          (lambda: make("sparc", model, local_wait=1), "did you mean local_weight"),
                          (lambda: make("dino", model), "needs a teacher, which only the program trainer has"),
                          (lambda: make("affinity", model, teachers=[{"width": 4, "temperature": 0.1}]), "affinity: needs stored embeddings of teachers"),
                          (lambda: objective({"image": {"embeddings": torch.zeros(2, 4)}}), "the features have no caption.embeddings"),
                          (lambda: model.features({"image": batch["image"]}, objective), "the batch has no caption")):
            with self.assertRaisesRegex(RuntimeError, said) as caught:
                use()
            self.assertEqual(len(str(caught.exception).strip().splitlines()), 1, str(caught.exception))
        blocks = tessera.load(self.start, "cpu", blocks=True)
        with self.assertRaisesRegex(ValueError, "needs attention of image, which plain blocks do not compute"):
            class Own:
                needs = {"images": {"image": ["attention"]}, "texts": {}}
            blocks(batch, Own())
        train(self.folder / "dropping", "training.steps=1", "schedule.warmup_steps=0", "data.loader.batch_size=8", "model.image.encoder.drop_path=0.1")
        with self.assertRaisesRegex(ValueError, r"model\.image\.encoder\.drop_path is 0\.1, which plain blocks do not do"):
            tessera.load(self.folder / "dropping", "cpu", blocks=True)


if __name__ == "__main__":
    unittest.main()
