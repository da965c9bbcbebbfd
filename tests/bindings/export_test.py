"""Tests `python -m tessera export`: the exported files' outputs beside the model's own. ctest runs it with the Python of LibTorch's
environment:

  python tests/bindings/export_test.py build/lib/libtessera.so build/bin

Exits with code 77, which ctest reports as skipped, if torch cannot be imported. Without onnx, onnxscript and onnxruntime (scripts/setup.sh
--export installs them), only torch.export's files are tested.
"""
import contextlib
import importlib.util
import io
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ImportError as error:
    print(f"skipped: {sys.executable} cannot import torch ({error})")
    sys.exit(77)

PROGRAMS = pathlib.Path(sys.argv.pop(2)).resolve()
os.environ["TESSERA_LIBRARY"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "python"))
import tessera  # noqa: E402
from tessera import _export_modules, export  # noqa: E402
from tessera.plain_parts import inputs  # noqa: E402
from export_models import ROOT, RUNS, train  # noqa: E402

torch.set_num_threads(1)
PHOTOGRAPHS = ROOT / "tests/data/images"
MISSING = [name for name in export.ONNX_PACKAGES if importlib.util.find_spec(name) is None]
def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stderr}")
    return done.stdout


def exported(*arguments):
    """Calls the command, and returns its exit code, output and errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = export.main([str(word) for word in arguments])
    return code, out.getvalue(), err.getvalue()


TEMPORARY = tempfile.TemporaryDirectory()


class Export(unittest.TestCase):
    folder, exports = pathlib.Path(TEMPORARY.name), {}

    def run_of(self, name):
        """Trains for three steps, and returns the run's folder."""
        folder = self.folder / "runs" / name
        if not folder.exists():
            train(PROGRAMS, name, folder)
        return folder

    def written(self, name, to, *arguments):
        """Exports a run, unless an earlier test did, and returns the folder and the output."""
        key = (name, to, *arguments)
        if key not in self.exports:
            out = self.folder / f"export{len(self.exports)}"
            code, said, err = exported(self.run_of(name), "--to", to, "--out", out, *arguments)
            self.assertEqual((code, err), (0, ""), said)
            self.exports[key] = out, said
        return self.exports[key]

    def expect_equal(self, found, expected, name, tolerance=1e-4):
        self.assertEqual(found.shape, expected.shape, name)
        self.assertLessEqual((found - expected).abs().max().item(), tolerance, name)

    def compare(self, name, to):
        """Compares an export in float32 with the model on batches of one and seven, and on texts of several lengths."""
        folder, said = self.written(name, to)
        self.assertEqual({file.stem for file in folder.glob(f"*.{to}")},
                         {"image", *RUNS[name][2]} | (set() if name == "images_only" else {"text"}))
        ours = tessera.load(self.run_of(name), device="cpu")
        generator = torch.Generator().manual_seed(1)
        pixels = [torch.randint(256, (3, 64, 64), dtype=torch.uint8, generator=generator) for _ in range(7)]
        if name == "siglip2":
            pixels = [ours.preprocess(image[:, :side]) for image, side in zip(pixels, (64, 8, 30, 50, 64, 20, 13))]
        image = export.runner(folder / f"image.{to}")
        plan = export.Plan(ours, False)
        with torch.no_grad():
            for rows in (1, 7):
                found = image(plan.inputs_of(pixels[:rows]))
                if name != "tokens_only":
                    expected = torch.nn.functional.normalize(ours._bound.image_parts(pixels[:rows], [])["embeddings"], dim=-1)
                    self.expect_equal(found["image_embeds"], expected, f"{name} {rows}")
            if "image_tokens" in found:
                expected = ours._bound.image_parts(pixels, ["tokens"])["tokens"]
                self.expect_equal(found["image_tokens"], expected, name, 1e-4 * expected.abs().max().item())
            if "image_slots" in found:
                self.expect_equal(found["image_slots"], ours._bound.image_parts(pixels, ["slots"])["slots"], name)
            if not ours.takes_texts:
                return folder, said
            text, padded = export.runner(folder / f"text.{to}"), bool(ours.tokenizer.settings.get("pad_is_text"))
            longest = ours.tokenizer.context_length
            for rows, length in ((1, longest), (7, longest)) if padded else ((1, 1), (1, longest), (7, 3), (7, 11), (3, longest)):
                ids = torch.randint(3, 100, (rows, length), generator=generator)
                mask = torch.arange(length) < torch.randint(1, length + 1, (rows, 1), generator=generator)
                mask = torch.ones_like(mask) if padded else mask
                found = text({"input_ids": ids} if padded else {"input_ids": ids, "attention_mask": mask.long()})
                if name != "tokens_only":
                    self.expect_equal(found["text_embeds"], ours.encode_text(ids, mask), f"{name} {rows} x {length}")
                if "text_tokens" in found:
                    expected = ours._bound.text_parts(ids, mask, ["tokens"])["tokens"]
                    self.expect_equal(found["text_tokens"], expected, name, 1e-4 * expected.abs().max().item())
        return folder, said

    def use(self, folder, name, *texts):
        """Runs use.py on photographs and returns the numbers that it prints."""
        photographs = sorted(PHOTOGRAPHS.glob("*420.jpg"))
        said = run(sys.executable, folder / "use.py", *photographs, *texts)
        return [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?", said)], photographs

    def expect_usable(self, folder, name):
        """Expects that use.py computes the cosines that the model computes from the same files."""
        for package in ("PIL", "sentencepiece" if (folder / "spiece.model").exists() else "tokenizers"):
            if importlib.util.find_spec(package) is None:
                self.skipTest(f"no {package}")
        texts = ("a large red circle, and a small blue square", "Two GREEN stars!")
        found, photographs = self.use(folder, name, *texts)
        ours = tessera.load(self.run_of(name), device="cpu")
        with torch.no_grad():
            expected = ours.encode_image(photographs) @ ours.encode_text(texts).T
        # A pixel may differ by a level, because Pillow decodes JPEG files with another library.
        self.expect_equal(torch.tensor(found[:expected.numel()]), expected.flatten(), name, 2e-3)


class Pt2(Export):
    def test_files_of_torch_export_compute_the_same(self):
        for name in ("sparc", "flair", "stair", "text_group", "siglip", "resnet", "siglip2", "convnext", "tokens_only"):
            with self.subTest(name):
                self.compare(name, "pt2")

    def test_float16(self):
        folder, said = self.written("sparo", "pt2", "--precision", "float16")
        self.assertIn("image_slots: error at most", said)
        self.assertEqual({p.dtype for p in torch.export.load(folder / "image.pt2").module().parameters()}, {torch.float16})

    def test_use_py(self):
        self.expect_usable(self.written("siglip", "pt2")[0], "siglip")

    def test_tokens_of_any_model(self):
        folder, _ = self.written("clip", "pt2", "--tokens")
        ours = tessera.load(self.run_of("clip"), device="cpu")
        pixels = torch.randint(256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
        mean, std = (torch.tensor(ours.preprocessing[key]).view(3, 1, 1) for key in ("mean", "std"))
        with torch.no_grad():
            found = export.runner(folder / "image.pt2")({"pixel_values": (pixels / 255 - mean) / std})
            self.expect_equal(found["image_tokens"], ours.encode_image(pixels, tokens=True, normalize=False).tokens, "clip")

    def test_mistakes_are_one_line(self):
        model = self.run_of("clip")
        (self.folder / "full").mkdir()
        (self.folder / "full/file").touch()
        for arguments, said in (((self.folder / "none", "--to", "pt2", "--out", self.folder / "new"), "none does not exist"),
                                ((model, "--to", "pt2", "--out", self.folder / "full"), "exists and is not an empty folder"),
                                ((model, "--to", "pt2", "--precision", "int8", "--out", self.folder / "new"), "use --to onnx"),
                                ((model, "--to", "pt2", "--images", self.folder / "full", "--out", self.folder / "new"),
                                 "no image in this folder")):
            code, _, err = exported(*arguments)
            self.assertEqual(code, 2)
            self.assertRegex(err, f"^tessera export: .*{said}.*\n$")
            self.assertFalse((self.folder / "new").exists() or (self.folder / "new.partial").exists())
        done = subprocess.run([sys.executable, "-m", "tessera", "export", model, "--to", "tflite", "--out", "x"], capture_output=True,
                              text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "invalid choice: 'tflite'")

    def test_inputs_py_makes_tesseras_pixels(self):
        try:
            import numpy as np
            from PIL import Image
        except ImportError as error:
            self.skipTest(str(error))
        generator = np.random.default_rng(0)
        images = [Image.fromarray(generator.integers(256, size=(height, width, 3), dtype=np.uint8))
                  for width, height in ((45, 70), (71, 33), (64, 64), (65, 64), (300, 20), (20, 90))]
        modes, roundings = ("shortest", "longest", "squash", "naflex"), ("half_even", "down")
        for mode, share, rounding, size in itertools.product(modes, (1.0, 0.875), roundings, ([64, 64], [48, 64])):
            ours = self.with_preprocessing(resize_mode=mode, crop_pct=share, crop_rounding=rounding, image_size=size, fill_color=7,
                                           interpolation="bilinear", max_patches=50)
            settings = ours.preprocessing
            for image in images:
                found = np.asarray(inputs.fitted(image, *inputs.sides(settings["image_size"]), settings))
                expected = ours.preprocess(image).permute(1, 2, 0).numpy()
                self.assertTrue(np.array_equal(found, expected), f"{settings} {image.size}")

    def with_preprocessing(self, **settings):
        """Returns the model `clip` with other settings of its preprocessing."""
        content = next(self.run_of("clip").glob("checkpoints/*/model.safetensors")).read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8:8 + length])
        model = json.loads(header["__metadata__"]["tessera.model"])
        model["preprocessing"].update(settings)
        model["image"]["encoder"]["image_size"] = settings["image_size"]
        header["__metadata__"]["tessera.model"] = json.dumps(model)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        (self.folder / "other.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length:])
        return tessera.load(self.folder / "other.safetensors", device="cpu")

    def test_heads_of_pacl_and_gloria_are_their_formulas(self):
        torch.manual_seed(0)
        images, texts, mask = torch.randn(2, 5, 4), torch.randn(3, 6, 4), torch.arange(6) < torch.tensor([[6], [2], [1]])
        unit = lambda x: torch.nn.functional.normalize(x, dim=-1)
        objective = _export_modules.Objective("gloria", {"attention_temperature": 0.3, "score_temperature": None}, {})
        found = _export_modules.head_of(objective, 7.0)(images, texts, mask.long())
        pacl = _export_modules.head_of(_export_modules.Objective("pacl", {"patch_temperature": 0.4}, {}), 7.0)(images, texts[:, 0])
        for i, patches in enumerate(images):
            for t, words in enumerate(texts):
                score = 0.0
                for word in words[mask[t]]:
                    weights = (patches @ word / 2 / 0.3).softmax(0)  # 2: the square root of the width
                    score += torch.exp(7.0 * unit(weights @ patches) @ unit(word))
                self.assertAlmostEqual(found["similarity"][i, t].item(), score.log().item(), places=4)
                weights = (unit(patches) @ unit(words[0]) / 0.4).softmax(0)
                self.assertAlmostEqual(pacl["similarity"][i, t].item(), (unit(weights @ patches) @ unit(words[0])).item(), places=5)

    def test_missing_packages_are_named_with_the_command_that_installs_them(self):
        with self.assertRaisesRegex(export.Refused, r"^no_such_package is not installed in .*: .* -m pip install no-such-package$"):
            export.need("json", "no_such_package")


@unittest.skipIf(MISSING, f"no {', '.join(MISSING)}")
class Onnx(Export):
    def test_every_family_equals_its_model(self):
        for name in RUNS:
            with self.subTest(name):
                folder, said = self.compare(name, "onnx")
                if (folder / "tokenizer.json").exists() and importlib.util.find_spec("tokenizers"):
                    self.assertIn("the ids of 12 of 12 captions equal Tessera's", said)
                for stem in RUNS[name][2]:
                    outputs = json.loads((folder / "export.json").read_text())["files"][f"{stem}.onnx"]["outputs"]
                    self.assertTrue(outputs and all(outputs.values()), name)

    def test_use_py(self):
        for name in ("clip", "siglip", "siglip2", "sparc", "text_group"):
            with self.subTest(name):
                self.expect_usable(self.written(name, "onnx")[0], name)

    def test_lower_precisions_on_photographs(self):
        for name in ("sparo", "stair", "clip"):
            for precision in ("float16", "int8"):
                with self.subTest(f"{name} {precision}"):
                    _, said = self.written(name, "onnx", "--precision", precision, "--images", str(PHOTOGRAPHS))
                    cosines = [float(x) for x in re.findall(r"cosine at least ([\d.]+)", said)]
                    self.assertGreaterEqual(min(cosines), 0.999, said)

    def test_too_large_an_error_is_reported(self):
        limit = export.TOLERANCE
        try:
            export.TOLERANCE = -1
            code, _, err = exported(self.run_of("images_only"), "--to", "onnx", "--out", self.folder / "far")
        finally:
            export.TOLERANCE = limit
        self.assertEqual(code, 1)
        self.assertIn("image_embeds: the limit is", err)


if __name__ == "__main__":
    unittest.main()
