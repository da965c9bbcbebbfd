"""Tests python/tessera: models, the loader, runs and the console commands. ctest runs it with the Python of LibTorch's environment:

  python tests/bindings/package_test.py build/lib/libtessera.so build/bin

Exits with code 77, which ctest reports as skipped, if torch cannot be imported.
"""
import copy
import doctest
import io
import json
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import warnings

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


def turning_run(folder):
    """Copies the run and changes its model's settings to exif_rotation."""
    out = folder / "turning"
    shutil.copytree(folder / "run", out)
    for path in out.rglob("*.safetensors"):
        content = path.read_bytes()
        # The settings are there as YAML and as JSON in a string. The length of the file's header must not change.
        content = content.replace(b"exif_rotation: false", b"exif_rotation:  true")
        path.write_bytes(content.replace(rb'exif_rotation\":false', rb'exif_rotation\": true'))
    return out


class Trained(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        run(PROGRAMS / "trainer", "--config", ROOT / "configs/shapes/clip.yaml", "--set", f"run.folder={cls.folder / 'run'}", "--set",
            "training.steps=2", "--set", "schedule.warmup_steps=1", "--set", "log.every_steps=1", "--set", "evaluation.tasks=[]",
            "--set", "data.loader.batch_size=8", "--set", "model.text.readout=gap")
        cls.picture, cls.pixels = noise(cls.folder)
        cls.model = tessera.load(cls.folder / "run", device=torch.device("cpu"))

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

    def test_files_bytes_images_and_arrays_give_the_same_pixels(self):
        expected = self.model.preprocess(self.picture)
        pixels = self.pixels.numpy()
        reversed_channels = pixels[..., ::-1].copy()
        reversed_channels.flags.writeable = False
        with_alpha = torch.cat([self.pixels, self.pixels[..., :1]], 2)
        for picture in (self.picture.read_bytes(), self.pixels, pixels, reversed_channels[..., ::-1], pixels.copy(order="F"), with_alpha,
                        pixels.astype("uint16") * 256 + 7, pixels.astype(">u2") * 256):
            self.assertTrue(torch.equal(self.model.preprocess(picture), expected))
        grey = self.model.preprocess(self.pixels[..., :1])
        self.assertTrue(torch.equal(self.model.preprocess(pixels[..., 0]), grey))
        self.assertTrue(torch.equal(self.model.preprocess(pixels[..., 0].astype("uint16") * 256), grey))
        with self.assertRaisesRegex(RuntimeError, "must have values from 0 to 65535, but it has values from 0 to 70000"):
            self.model.preprocess(torch.tensor([[0, 70000]], dtype=torch.int32))
        with self.assertRaisesRegex(RuntimeError, "no level of this one is above 255"):
            self.model.preprocess(pixels.astype("int32"))
        torch.testing.assert_close(self.model.encode_image(pixels[None][:, ::-1, ::-1][:, ::-1, ::-1].transpose(0, 3, 1, 2)[:, :, :64, :64]),
                                   self.model.encode_image(self.pixels[:64, :64].permute(2, 0, 1).contiguous()[None]))

    def test_pil_images_give_the_pixels_of_their_files(self):
        try:
            import PIL.Image
        except ImportError:
            self.skipTest("no Pillow")
        files, _ = plain_model.read_safetensors(ROOT / "tests/data/images/unusual_formats.safetensors")
        turning = tessera.load(turning_run(self.folder), device="cpu")
        for name in ("png_grey_12_in_16", "tiff_grey_12", "tiff_grey_signed_16", "png_grey_16_transparent", "webp_moving", "jpeg_exif_6"):
            content = bytes(files[name + ".file"].tolist())
            image = PIL.Image.open(io.BytesIO(content))
            for model in (self.model, turning):
                self.assertTrue(torch.equal(model.preprocess(image), model.preprocess(content)), name)
        self.assertFalse(torch.equal(turning.preprocess(content), self.model.preprocess(content)))
        with self.assertRaisesRegex(TypeError, "an image of floats"):
            self.model.preprocess(PIL.Image.new("F", (2, 2)))

    def test_another_image_size_can_be_chosen(self):
        for size, shape in ((32, (3, 32, 32)), ((32, 96), (3, 32, 96))):
            model = tessera.load(self.folder / "run", device="cpu", image_size=size)
            self.assertEqual(tuple(model.preprocess(self.picture).shape), shape)
            self.assertEqual(model.encode_image(self.picture).shape, (1, model.embed_dim))
        with self.assertRaisesRegex(RuntimeError, "^state ema: .* has only one set of weights"):
            tessera.load(self.folder / "run", device="cpu", state="ema")

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
        for replace in (lambda: model.load_state_dict(state, assign=True),
                        lambda: setattr(model, "logit_scale", torch.nn.Parameter(torch.ones(())))):
            with self.assertRaisesRegex((AttributeError, RuntimeError), "compiled model, which would not use"):
                replace()

    def test_the_loader_of_a_model_gives_its_inputs(self):
        batch = tessera.Loader({"name": "shapes", "size": 100}, model=self.model, batch_size=4).next()
        self.assertEqual(tuple(batch["image"].shape), (4, 3, 64, 64))
        texts = [self.model.tokenizer.decode(ids) for ids in batch["caption"]]
        self.assertTrue(all(texts))
        length = batch["caption"].shape[1]
        torch.testing.assert_close(batch["caption"], self.model.tokenizer(texts)[:, :length], atol=0, rtol=0)
        images, texts = self.model(batch["image"], batch["caption"], batch["caption_mask"])
        self.assertEqual((images.shape, texts.shape), ((4, self.model.embed_dim), (4, self.model.embed_dim)))
        with self.assertRaisesRegex(RuntimeError, "image_size is the model's"):
            tessera.Loader("shapes", model=self.model, image_size=32)

    def test_pixels_that_are_not_the_models_input_are_refused(self):
        batch = torch.stack([self.model.preprocess(self.picture)] * 2)
        settings = self.model.preprocessing
        mean, std = (torch.tensor(settings[name]).view(3, 1, 1) for name in ("mean", "std"))
        normalized = (batch / 255 - mean) / std
        expected = self.model.encode_image(batch)
        torch.testing.assert_close(self.model.encode_image(normalized, already_normalized=True), expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(self.model.encode_image(list(normalized), already_normalized=True), expected, atol=1e-6, rtol=0)
        for pixels, said in ((batch.float() / 255, "got Float pixels.*already_normalized=True"), (batch.float(), "already_normalized"),
                             (normalized, "already_normalized"), (batch.long(), "expected uint8"),
                             (batch[:, :, :32], r"takes \[3, 64, 64\]"),
                             (batch.permute(0, 2, 3, 1), r"an image \[64, 64, 3\], but this model takes \[3, 64, 64\]")):
            with self.assertRaisesRegex(RuntimeError, said) as caught:
                self.model.encode_image(pixels)
            self.assertEqual(len(str(caught.exception).strip().splitlines()), 1)
        with self.assertRaisesRegex(RuntimeError, "expected floating ones"):
            self.model.encode_image(batch, already_normalized=True)

    def test_preprocessed_images_are_images(self):
        prepared = self.model.preprocess(self.picture)
        expected = self.model.encode_image([self.picture])
        channels_first = self.pixels.permute(2, 0, 1)
        for pictures in (prepared, [prepared], prepared.numpy()[None], channels_first, [channels_first]):
            torch.testing.assert_close(self.model.encode_image(pictures), expected, atol=0, rtol=0)
        torch.testing.assert_close(self.model.preprocess(self.pixels[:, :, 0].unsqueeze(0)), self.model.preprocess(self.pixels[:, :, 0]))

    def test_ids_without_a_mask_get_the_mask_of_the_padding(self):
        texts = ["a red circle", "two blue squares on grey"]
        ids, mask = self.model.tokenize(texts)
        expected = self.model.encode_text(ids, mask)
        torch.testing.assert_close(self.model.encode_text(ids), expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(self.model.encode_text(ids.int(), mask.long()), expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(self.model.encode_text(ids.unsqueeze(1))[:, 0], expected, atol=1e-6, rtol=0)
        self.assertGreater((self.model.encode_text(ids, torch.ones_like(mask)) - expected).abs().max().item(), 1e-3)
        for use, said in ((lambda: self.model.encode_text(ids[0]), r"int64 \[B, L\]"),
                          (lambda: self.model.encode_text(ids + 10**6), "vocabulary has"),
                          (lambda: self.model.encode_text(ids.float()), r"int64 \[B, L\]"),
                          (lambda: self.model.encode_text(ids, mask[:1]), "the mask is"),
                          (lambda: self.model.encode_text(ids, torch.where(mask, 0.0, -1e9)), "the mask is Float: give bool"),
                          (lambda: self.model.encode_text([], tokens=True), "needs at least one image or text")):
            with self.assertRaisesRegex(RuntimeError, said):
                use()

    def test_ids_of_another_vocabulary_are_reported_once(self):
        model = tessera.load(self.folder / "run", device="cpu")
        loader = tessera.Loader({"name": "shapes", "size": 100}, tokenizer=CLIP, image_size=64, batch_size=4, shuffle=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                model.encode_text(loader.next()["caption"].clamp_max(20))
        self.assertEqual([str(warning.message).split(":")[0] for warning in caught], ["encode_text"])
        self.assertIn("model=model", str(caught[0].message))
        with warnings.catch_warnings(record=True) as caught:  # the model's own ids are not the Loader's
            warnings.simplefilter("always")
            model = tessera.load(self.folder / "run", device="cpu")
            model.encode_text(model.tokenize(["a red circle"])[0])
            self.assertEqual(caught, [])
            right = tessera.Loader({"name": "shapes", "size": 100}, model=model, batch_size=4)
            model.encode_text(right.next()["caption"])
            self.assertEqual(caught, [])
            try:
                model.encode_text(loader.next()["caption"])
            except RuntimeError:  # its ids exceed the model's vocabulary
                pass
        self.assertEqual(len(caught), 1)
        del loader, right

    def test_settings_and_tokenizer_are_the_models(self):
        model = self.model
        config = model.config
        self.assertEqual((model.preprocessing["image_size"], config["model"]["text"]["readout"]["name"]), (64, "gap"))
        self.assertEqual(config["training"]["steps"], 2)
        tokenizer = model.tokenizer
        ids = tokenizer.encode("a red circle")
        self.assertEqual(tokenizer.decode(ids), "a red circle")
        row = tokenizer(["a red circle"])[0]
        self.assertEqual(row.tolist(), ids + [tokenizer.pad_id] * (tokenizer.context_length - len(ids)))
        self.assertLess(max(ids), tokenizer.vocab_size)
        self.assertGreater(len(tokenizer.vocabulary), 100)
        for shown in (repr(model), repr(model.visual), repr(tokenizer)):
            self.assertEqual(len(shown.splitlines()), 1, shown)
        for fact in ("image: vit + gap", "text: text_transformer + gap", "image_size 64", "parameters", "float32", "cpu"):
            self.assertIn(fact, repr(model))

    def test_a_new_bias_is_saved_and_other_new_parts_are_refused(self):
        model = tessera.load(self.folder / "run", device="cpu")
        model.logit_bias = torch.nn.Parameter(torch.tensor(-10.0))
        model.save(self.folder / "biased.safetensors")
        self.assertEqual(tessera.load(self.folder / "biased.safetensors", device="cpu").logit_bias.item(), -10)
        self.assertEqual(copy.deepcopy(model).logit_bias.item(), -10)
        model.head = torch.nn.Linear(2, 2)
        with self.assertRaisesRegex(RuntimeError, "head.bias, head.weight"):
            model.save(self.folder / "with_head.safetensors")
        del model.head
        model.save(self.folder / "biased.safetensors")

    def test_a_tuned_model_is_saved_as_evaluate_reads_it(self):
        model = tessera.load(self.folder / "run", device="cpu")
        self.assertIn("logit_scale", model.state_dict())
        self.assertIsNone(model.logit_bias)
        loader = tessera.Loader({"name": "shapes", "size": 100}, model=model, batch_size=8)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        batch = loader.next()
        images, texts = model(batch["image"], batch["caption"])
        torch.nn.functional.cross_entropy(model.logit_scale.exp() * images @ texts.T, torch.arange(8)).backward()
        self.assertNotEqual(model.logit_scale.grad.item(), 0)
        optimizer.step()
        tuned = self.folder / "tuned.safetensors"
        model.save(tuned)
        before, metadata = plain_model.read_safetensors(self.model.path)
        after, saved = plain_model.read_safetensors(tuned)
        self.assertEqual({name: tensor.shape for name, tensor in after.items()}, {name: tensor.shape for name, tensor in before.items()})
        self.assertEqual(saved, metadata)
        self.assertEqual(after["logit_scale"].item(), model.logit_scale.item())
        self.assertNotEqual(after["logit_scale"].item(), before["logit_scale"].item())
        expected = model.encode_image([self.picture])
        torch.testing.assert_close(tessera.load(tuned, "cpu").encode_image([self.picture]), expected, atol=0, rtol=0)

        def scores(checkpoint):
            out = run(PROGRAMS / "evaluate", "--checkpoint", checkpoint, "--task", "retrieval", "--data", "{name: shapes, size: 64}",
                      "--json", "--device", "cpu", "--out", self.folder / f"scores_of_{checkpoint.name}").stdout
            return json.loads(out)["tasks"][0]["metrics"]
        self.assertNotEqual(scores(tuned), scores(self.folder / "run"))
        with tempfile.TemporaryDirectory() as folder:
            run(PROGRAMS / "trainer", "--config", self.folder / "run/config.yaml", "--set", f"run.folder={folder}/again", "--set",
                f"start.weights={tuned}", "--set", "training.steps=1", "--set", "schedule.warmup_steps=0", "--set", "optimizer.lr=0")
            torch.testing.assert_close(tessera.load(f"{folder}/again", "cpu").state_dict(), model.state_dict(), atol=1e-6, rtol=0)
        for path, said in (("tuned.pt", "ends in .safetensors"), (self.folder / "run" / "config.yaml" / "x.safetensors", "config.yaml")):
            with self.assertRaisesRegex(RuntimeError, said):
                model.save(path)

    def test_copies_and_pickles_are_models_of_their_own(self):
        model = tessera.load(self.folder / "run", device="cpu").double().train()
        model.visual.requires_grad_(False)
        expected = model.encode_image([self.pixels]).detach()
        stream = io.BytesIO()
        torch.save(model, stream)
        stream.seek(0)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(stream, weights_only=False)):
            torch.testing.assert_close(other.encode_image([self.pixels]).detach(), expected, atol=0, rtol=0)
            self.assertEqual((other.training, other.visual.conv1.weight.requires_grad), (True, False))
            self.assertEqual(list(other.state_dict()), list(model.state_dict()))
            with torch.no_grad():
                for parameter in other.parameters():
                    parameter.zero_()
            torch.testing.assert_close(model.encode_image([self.pixels]).detach(), expected, atol=0, rtol=0)
            self.assertEqual(other.encode_image([self.pixels], normalize=False).abs().max().item(), 0)
        with self.assertRaisesRegex(TypeError, "state_dict"):
            copy.deepcopy(tessera.Loader("shapes"))

    def test_embeddings_have_the_type_of_the_weights(self):
        images, texts = self.model.encode_image([self.pixels]).detach(), self.model.encode_text("a circle").detach()
        for dtype, error in ((torch.float64, 1e-5), (torch.bfloat16, 0.05), (torch.float16, 0.01)):
            model = tessera.load(self.folder / "run", device="cpu").to(dtype)
            for found, expected in ((model.encode_image([self.pixels]), images), (model.encode_text("a circle"), texts)):
                self.assertEqual(found.dtype, dtype)
                torch.testing.assert_close(found.detach().float(), expected, atol=error, rtol=0)

    def test_patches_and_tokens_equal_tessera_embed(self):
        (self.folder / "texts.txt").write_text("a red circle\ntwo blue squares on grey")
        expected = self.embeddings("--images", self.picture, "--texts", self.folder / "texts.txt", "--dense")
        images = self.model.encode_image(self.picture, tokens=True)
        texts = self.model.encode_text(["a red circle", "two blue squares on grey"], tokens=True)
        for found, name in ((images.embedding, "image_embeddings"), (images.tokens, "image_patches"), (texts.embedding, "text_embeddings"),
                            (texts.tokens, "text_tokens"), (texts.mask, "text_mask")):
            torch.testing.assert_close(found.detach(), expected[name], atol=1e-6, rtol=0)
        self.assertEqual((images.grids.tolist(), texts.grids, bool(images.mask.all())), ([list(self.model.grid)], None, True))
        self.assertEqual(images.tokens.shape[1], self.model.grid[0] * self.model.grid[1])

    def test_words_name_their_tokens(self):
        text = "Two red circles, caf\u00e9 grey."
        words = self.model.words(text)
        self.assertEqual([word.text for word in words][:3], ["Two", "red", "circles"])
        ids = self.model.tokenizer.encode(text)
        for word in words:
            if word.span:
                self.assertEqual(text[slice(*word.span)], word.text)
            spelling = self.model.tokenizer.decode([ids[p] for p in word.positions])
            self.assertEqual(spelling.replace(" ", ""), "".join(word.pieces).replace(" ", ""))

    def test_mistakes_are_reported_in_one_line(self):
        (self.folder / "text.jpg").write_text("no picture")
        for use, said in ((lambda: tessera.load(self.folder / "none"), "none does not exist"),
                          (lambda: tessera.load(self.folder / "run", device="gpu"), "^device gpu: expected"),
                          (lambda: tessera.load(self.model.path, architecture="ViT-B-32"), "^architecture ViT-B-32: "),
                          (lambda: tessera.Loader({"name": "csv", "path": self.folder / "none.csv"}), r"none\.csv"),
                          (lambda: self.model.preprocess(self.folder / "text.jpg"), r"text\.jpg: expected a JPEG, PNG, WebP, GIF, BMP or TIFF file"),
                          (lambda: self.model.preprocess(torch.zeros(2, 2, 4)), r"an image must be uint8 \(or uint16\) \[height, width, 1 to 4\], but it is Float"),
                          (lambda: tessera.Loader({"name": "shapes", "sise": 3}), "did you mean size"),
                          (lambda: tessera.Loader("shapes", batch_size=0), "loader.batch_size: expected at least 1"),
                          (lambda: tessera.Loader("shapes", rank=2, world_size=2), "rank 2 of world_size 2: expected "),
                          (lambda: tessera.Loader("shapes", world_size=0), "rank 0 of world_size 0: expected ")):
            with self.assertRaisesRegex(RuntimeError, said) as caught:
                use()
            self.assertEqual(len(str(caught.exception).strip().splitlines()), 1)
            self.assertEqual(isinstance(caught.exception, FileNotFoundError), "none" in said)
        for texts in ([1, 2], [["a"]], 5):
            with self.assertRaisesRegex(TypeError, "^.*(int|list).*$"):
                self.model.encode_text(texts)

    def test_the_plain_model_names_what_it_does_not_build(self):
        for part, settings in (("encoder", {"encoder": {"name": "own"}}), ("readout", {"encoder": "vit", "readout": "own"})):
            with self.assertRaisesRegex(ValueError, rf"model\.image\.{part}: plain PyTorch has .*, not own"):
                plain_model.Model({"image": settings}, {}, {}, b"")

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
        table = tessera.read_runs(self.folder / "run")
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

    def test_next_continues_as_iteration_does(self):
        loader, other = self.loader(), self.loader()
        self.assertEqual(next(loader)["keys"], other.next()["keys"])
        self.assertEqual(next(iter(loader))["keys"], next(iter(other))["keys"])

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
        for program in {path.name for path in PROGRAMS.iterdir()} - {"tessera-probe"}:  # which the tests build
            self.assertRegex(out, rf"(?m)^    {program} +\w")
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
