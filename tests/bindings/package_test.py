"""Tests python/tessera: models, the loader, runs and the console commands. ctest runs it with the Python of LibTorch's environment:

  python tests/bindings/package_test.py build/lib/libtessera.so build/bin

Exits with code 77, which ctest reports as skipped, if torch cannot be imported.
"""
import copy
import doctest
import json
import os
import pathlib
import shutil
import struct
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
sys.path.insert(0, str(ROOT / "python"))
import tessera  # noqa: E402
from tessera import plain_model, runs  # noqa: E402

CLIP = {"name": "clip-bpe"}


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)


def noise(folder):
    """Writes a PNG of noise with the standard library and returns its path and its pixels [H, W, 3]."""
    import zlib
    pixels = torch.randint(256, (75, 100, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    rows = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels)

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    path = folder / "noise.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 100, 75, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return path, pixels


class Trained(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        run(PROGRAMS / "trainer", "--config", ROOT / "configs/shapes/clip.yaml", "--set", f"run.folder={cls.folder / 'run'}", "--set",
            "training.steps=2", "--set", "schedule.warmup_steps=1", "--set", "log.every_steps=1", "--set", "evaluation.tasks=[]",
            "--set", "data.loader.batch_size=8")
        cls.picture, cls.pixels = noise(cls.folder)
        cls.model = tessera.load(cls.folder / "run", device="cpu")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def embeddings(self, *arguments):
        out = self.folder / "embeddings.safetensors"
        run(PROGRAMS / "tessera-embed", "--checkpoint", self.folder / "run", "--device", "cpu", "--out", out, *arguments)
        return plain_model.read_safetensors(out)[0]

    def test_image_embeddings_equal_tessera_embed(self):
        expected = self.embeddings("--images", self.picture)["image_embeddings"]
        for picture in (self.picture, str(self.picture), self.picture.read_bytes(), self.pixels, self.pixels.numpy()):
            torch.testing.assert_close(self.model.encode_image([picture]).detach(), expected, atol=1e-6, rtol=0)
        self.assertEqual(self.model.encode_image([]).shape, self.model.encode_text([]).shape)
        prepared = self.model.preprocess(self.picture)
        self.assertEqual((prepared.dtype, tuple(prepared.shape)), (torch.uint8, (3, 64, 64)))
        torch.testing.assert_close(self.model.encode_image(prepared.unsqueeze(0)).detach(), expected, atol=1e-6, rtol=0)

    def test_text_embeddings_equal_tessera_embed(self):
        texts = ["a red circle", "two blue squares on grey"]
        (self.folder / "texts.txt").write_text("\n".join(texts))
        expected = self.embeddings("--texts", self.folder / "texts.txt")["text_embeddings"]
        torch.testing.assert_close(self.model.encode_text(texts).detach(), expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(self.model.encode_text(*self.model.tokenize(texts)).detach(), expected, atol=1e-6, rtol=0)

    def test_gradients_and_updates_reach_the_towers(self):
        model = tessera.load(self.folder / "run", device="cpu")
        before = model.encode_image([self.pixels]).detach()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        (model.encode_image([self.pixels]) * torch.arange(model.embed_dim)).sum().backward()
        self.assertTrue(any(p.grad is not None and p.grad.any() for p in model.parameters()))
        optimizer.step()
        self.assertGreater((model.encode_image([self.pixels]).detach() - before).abs().max().item(), 1e-4)

    def test_changing_the_dtype_of_the_module_changes_the_towers(self):
        model = tessera.load(self.folder / "run", device="cpu")
        expected = model.encode_text("a circle").detach()
        model.double()
        found = model.encode_text("a circle")
        self.assertEqual(found.dtype, torch.float64)
        torch.testing.assert_close(found.detach().float(), expected, atol=1e-5, rtol=0)

    def test_the_state_dict_can_be_loaded_back(self):
        model = tessera.load(self.folder / "run", device="cpu")
        state = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
        model.load_state_dict(state)
        self.assertEqual(model.encode_text("a circle", normalize=False).abs().max().item(), 0)

    def test_mistakes_are_reported_in_one_line(self):
        (self.folder / "text.jpg").write_text("no picture")
        for use, said in ((lambda: tessera.load(self.folder / "none"), "none does not exist"),
                          (lambda: self.model.preprocess(self.folder / "text.jpg"), r"text\.jpg: expected a JPEG, PNG, WebP, GIF, BMP or TIFF file"),
                          (lambda: self.model.preprocess(torch.zeros(2, 2, 4)), r"an image must be uint8 \[height, width, 3\]"),
                          (lambda: tessera.Loader({"name": "shapes", "sise": 3}), "did you mean size"),
                          (lambda: tessera.Loader("shapes", batch_size=0), "loader.batch_size: expected at least 1"),
                          (lambda: tessera.Loader("shapes", rank=2, world_size=2), "rank 2 of world_size 2: expected "),
                          (lambda: tessera.Loader("shapes", world_size=0), "rank 0 of world_size 0: expected ")):
            with self.assertRaisesRegex(RuntimeError, said) as caught:
                use()
            self.assertEqual(len(str(caught.exception).strip().splitlines()), 1)

    def test_the_plain_model_names_what_it_does_not_build(self):
        for settings, said in (({"unit_length": True}, "unit_length"), ({"preprocessing": {"resize_mode": "naflex"}}, "naflex")):
            with self.assertRaisesRegex(ValueError, said):
                plain_model.Model(settings, {}, {}, b"")

    def test_the_plain_model_is_a_module_that_can_be_copied_traced_and_exported(self):
        file = next(self.folder.glob("run/checkpoints/*/model.safetensors"))
        model = plain_model.load(file)
        self.assertEqual(set(model.state_dict()), set(plain_model.read_safetensors(file)[0]))
        pixels, ids = torch.randn(2, 3, 64, 64), torch.randint(1, 100, (2, 40))
        more, batch = torch.cat([pixels, pixels.flip(3)]), {0: torch.export.Dim("batch")}
        expected = model(more)
        self.assertFalse(expected.requires_grad)
        traced = torch.jit.trace(model, (pixels,))
        exported = torch.export.export(model, (pixels,), dynamic_shapes={"pixels": batch}).module()
        for form in (traced, exported, copy.deepcopy(model)):
            torch.testing.assert_close(form(more), expected, atol=1e-6, rtol=0)
        texts = torch.export.export(model, (None, ids), dynamic_shapes={"pixels": None, "ids": batch}).module()
        torch.testing.assert_close(texts(None, ids.repeat(2, 1)), model(ids=ids).repeat(2, 1), atol=1e-6, rtol=0)
        model.double().requires_grad_()
        model(pixels.double()).sum().backward()
        self.assertIsNotNone(model.get_parameter("visual.conv1.weight").grad)

    def test_runs_are_read_as_a_table(self):
        (self.folder / "run/evaluation").mkdir(exist_ok=True)
        result = {"task": "zero_shot", "metrics": {"top1": 0.5}}
        for step, value in ((9, 0.25), (10, 0.5)):
            result["metrics"]["top1"] = value
            (self.folder / f"run/evaluation/step_{step:07d}.json").write_text(json.dumps({"step": step, "results": [result, result]}))
        for name, hour, tasks in (("evaluation-2", 17, {"zero_shot": 0.625, "knn": 0.125}), ("evaluation", 18, {"zero_shot": 0.75})):
            (self.folder / "run" / name).mkdir(exist_ok=True)
            (self.folder / "run" / name / "results.json").write_text(json.dumps({
                "step": 10, "date": f"2026-11-26T{hour}:00:00Z",
                "tasks": [{"task": task, "metrics": {"top1": value}} for task, value in tasks.items()]}))
        with open(self.folder / "run/metrics.jsonl", "a", encoding="utf-8") as log:
            log.write('{"step": 3, "lo')  # a killed run may leave an incomplete last line
        table = tessera.read_runs(self.folder)
        row = table if isinstance(table, list) else table.to_dict("records")
        columns = ("name", "step", "zero_shot.top1", "zero_shot_2.top1", "knn.top1")
        self.assertEqual([tuple(r[column] for column in columns) for r in row], [("run", 2, 0.75, 0.5, 0.125)])
        self.assertEqual(doctest.testmod(runs).failed, 0)


class Loading(unittest.TestCase):
    def loader(self, **settings):
        return tessera.Loader({"name": "shapes", "size": 100}, **{"tokenizer": CLIP, "image_size": 32, "batch_size": 32, **settings})

    def test_an_epoch_has_each_sample_of_its_full_batches_once(self):
        loader = self.loader()
        for epoch in range(2):
            self.assertEqual(loader.epoch, epoch)
            batches = list(loader)
            self.assertEqual(len(batches), len(loader))
            keys = [key for batch in batches for key in batch["keys"]]
            self.assertEqual(len(set(keys)), 96)
        first = batches[0]
        self.assertEqual((first["image"].dtype, tuple(first["image"].shape)), (torch.uint8, (32, 3, 32, 32)))
        self.assertEqual(first["caption"].dtype, torch.int64)
        self.assertEqual(first["caption"].shape, first["caption_mask"].shape)
        self.assertEqual(loader.skipped(), {})

    def test_batches_depend_on_the_seed_but_not_on_threads(self):
        one, four, other = (self.loader(**settings).next() for settings in ({"threads": 1}, {"threads": 4}, {"seed": 1}))
        self.assertEqual(one["keys"], four["keys"])
        self.assertTrue(torch.equal(one["image"], four["image"]) and torch.equal(one["caption"], four["caption"]))
        self.assertNotEqual(one["keys"], other["keys"])

    def test_resumes_at_the_saved_state(self):
        loader = self.loader()
        loader.next()
        state, expected = loader.state_dict(), loader.next()
        again = self.loader()
        again.load_state_dict(state)
        self.assertTrue(torch.equal(again.next()["image"], expected["image"]))

    def test_ranks_share_the_samples(self):
        keys = [{key for batch in self.loader(batch_size=10, rank=rank, world_size=2) for key in batch["keys"]} for rank in (0, 1)]
        self.assertEqual([len(k) for k in keys], [50, 50])
        self.assertFalse(keys[0] & keys[1])

    def test_without_a_tokenizer_batches_have_no_texts(self):
        self.assertEqual(set(self.loader(tokenizer=None).next()), {"image", "labels", "keys"})

    def test_batches_outlive_their_loader(self):
        batch = self.loader().next()
        self.assertGreater(batch["image"].float().std().item(), 1)


class Commands(unittest.TestCase):
    def call(self, *arguments, **environment):
        ran = subprocess.run([sys.executable, "-m", "tessera", *arguments], capture_output=True, text=True,
                             env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment})
        return ran.returncode, ran.stdout, ran.stderr

    def test_the_list_has_every_program(self):
        code, out, _ = self.call()
        self.assertEqual(code, 0)
        for program in PROGRAMS.iterdir():
            self.assertRegex(out, rf"(?m)^    {program.name} +\w")
        self.assertEqual(self.call("--version")[1].strip(), tessera.__version__)

    def test_the_cmake_prefix_includes_pytorch_unless_it_is_next_to_tessera(self):
        package, of_torch = ROOT / "python/tessera", pathlib.Path(torch.__file__).parent
        self.assertEqual(self.call("--cmake-prefix"), (0, f"{package};{of_torch}\n", ""))
        with tempfile.TemporaryDirectory() as folder:
            site = pathlib.Path(folder).resolve()
            shutil.copytree(package, site / "tessera", ignore=shutil.ignore_patterns("__pycache__"))
            (site / "torch").mkdir()
            (site / "torch/__init__.py").touch()
            self.assertEqual(self.call("--cmake-prefix", PYTHONPATH=folder), (0, f"{site / 'tessera'}\n", ""))

    def test_a_wrong_torch_is_reported_without_importing_it(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder) / "torch"
            fake.mkdir()
            (fake / "__init__.py").write_text("raise SystemExit('imported')")
            (fake / "version.py").write_text("__version__ = '2.3.1+cpu'\n")
            path = os.pathsep.join((folder, str(ROOT / "python")))
            code, _, err = self.call("trainer", "--version", PYTHONPATH=path)
        self.assertEqual(code, 1)
        self.assertRegex(err, r"^trainer: built for PyTorch 2\.\d+, but .*/torch is PyTorch 2\.3\.1\+cpu: pip install 'torch==2\.\d+\.\*'\n$")

    def test_an_unknown_program_is_reported_in_one_line(self):
        code, _, err = self.call("trianer")
        self.assertEqual((code, err), (1, "tessera: there is no program 'trianer'; python -m tessera lists the programs\n"))


if __name__ == "__main__":
    unittest.main()
