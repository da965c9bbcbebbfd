"""Tests tessera.mteb and `python -m tessera mteb`. ctest runs it with the Python of LibTorch's environment:

  python tests/bindings/mteb_test.py build/lib/libtessera.so build/bin

Exits with code 77, which ctest reports as skipped, if torch or mteb cannot be imported (scripts/setup.sh --mteb installs mteb).
scripts/compare/mteb_scores.py compares the scores with mteb's own wrapper of OpenCLIP.
"""
import contextlib
import io
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import mteb
    import torch
    import torchvision  # noqa: F401, mteb needs it for images
    from mteb.mocks import MOCK_MIEB_TASK_GRID
    from mteb.results.task_result import TaskResult
except ImportError as error:
    print(f"skipped: {sys.executable}: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = pathlib.Path(sys.argv.pop(2)).resolve()
os.environ["TESSERA_LIBRARY"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
sys.path.insert(0, str(ROOT / "python"))
import mteb_tasks  # noqa: E402
import tessera  # noqa: E402
import tessera.mteb  # noqa: E402

torch.set_num_threads(1)
warnings.simplefilter("ignore")
logging.disable(logging.ERROR)


def command(*arguments):
    """Calls the command, and returns its exit code, output and errors, the latter without progress bars."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = tessera.mteb.main([str(word) for word in arguments])
    return code, out.getvalue(), "".join(line for line in err.getvalue().splitlines(True) if line.startswith("tessera mteb: "))


def local_tasks(names, languages=None):
    return [getattr(mteb_tasks, name)() for name in names]


class Unreachable(mteb_tasks.DigitsZeroShot):
    def load_data(self, num_proc=None, **kwargs):
        raise ConnectionError("Couldn't reach 'sklearn/digits' on the Hub (OfflineModeIsEnabled)")


class Mteb(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.run_folder = cls.folder / "mine"
        subprocess.run([PROGRAMS / "trainer", "--config", ROOT / "configs/shapes/clip.yaml", "--set", f"run.folder={cls.run_folder}",
                        "training.steps=2", "schedule.warmup_steps=1", "evaluation.tasks=[]", "data.loader.batch_size=8"],
                       check=True, capture_output=True)
        cls.encoder = tessera.mteb.Encoder(cls.run_folder, device="cpu")
        cls.model = cls.encoder.model

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def score(self, task):
        found, = mteb.evaluate(self.encoder, task, cache=None, co2_tracker=False, show_progress_bar=False,
                               encode_kwargs={"batch_size": 32, "show_progress_bar": False}).task_results
        return found.get_score()

    def test_mock_tasks_of_every_kind_run(self):
        with contextlib.redirect_stderr(io.StringIO()):
            found = mteb.mock_run(self.encoder)
        ran = {name: result for name, result in found.items() if result is not None}
        self.assertEqual({name: str(result) for name, result in ran.items() if not isinstance(result, TaskResult)}, {})
        self.assertLessEqual({task.metadata.name for task in MOCK_MIEB_TASK_GRID}, set(ran))
        self.assertGreater(len(ran), 40)  # the tasks of texts, too

    def test_describes_the_model(self):
        meta = self.encoder.mteb_model_meta
        self.assertEqual((meta.name, meta.modalities, meta.embed_dim, meta.max_tokens),
                         ("tessera/mine", ["image", "text"], self.model.embed_dim, self.model.tokenizer.context_length))
        self.assertEqual(meta.n_parameters, sum(tensor.numel() for tensor in self.model.parameters()))
        again = tessera.mteb.Encoder(self.run_folder, "me/other", device="cpu")
        self.assertEqual((again.mteb_model_meta.name, again.mteb_model_meta.revision), ("me/other", meta.revision))
        with torch.no_grad():
            next(again.model.parameters()).view(-1)[0] += 1
        del again.mteb_model_meta
        self.assertNotEqual(again.mteb_model_meta.revision, meta.revision)
        with self.assertRaisesRegex(ValueError, "ORGANIZATION/NAME"):
            tessera.mteb.Encoder(self.model, "mine")

    def test_zero_shot_accuracy_is_that_of_cosines(self):
        pictures, labels = mteb_tasks.digits(600, 900)
        with torch.no_grad():
            cosines = self.model.encode_image(pictures) @ self.model.encode_text(mteb_tasks.DigitsZeroShot().get_candidate_labels()).T
        accuracy = (cosines.argmax(1) == torch.tensor(labels)).double().mean().item()
        self.assertAlmostEqual(self.score(mteb_tasks.DigitsZeroShot()), accuracy, delta=1.5 / 300)  # rounding may decide one picture

    def test_linear_probe_and_nearest_neighbors_recognize_digits(self):
        for task in (mteb_tasks.DigitsLinearProbe, mteb_tasks.DigitsNearestNeighbors):
            self.assertGreater(self.score(task()), 0.2, task)  # chance is 0.1

    def test_an_image_with_a_text_has_the_sum_of_their_embeddings(self):
        pictures, _ = mteb_tasks.digits(0, 5)
        texts = [f"a {name}" for name in mteb_tasks.NAMES[:5]]
        with torch.no_grad():
            images, words = self.model.encode_image(pictures, normalize=False), self.model.encode_text(texts, normalize=False)
        batches = [{"image": pictures[:3], "text": texts[:3]}, {"image": pictures[3:], "text": texts[3:]}]
        for kinds, expected in ((("image", "text"), images + words), (("image",), images), (("text",), words)):
            found = self.encoder.encode([{kind: batch[kind] for kind in kinds} for batch in batches], show_progress_bar=False)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        self.assertEqual(self.encoder.encode([], show_progress_bar=False).shape, (0, self.model.embed_dim))
        with self.assertRaisesRegex(ValueError, "neither image nor text, but audio"):
            self.encoder.encode([{"audio": []}], show_progress_bar=False)

    def test_similarities_are_cosines(self):
        a, b = (torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
        expected = torch.nn.functional.cosine_similarity(a.unsqueeze(1), b.unsqueeze(0), dim=-1)
        torch.testing.assert_close(self.encoder.similarity(a, b.numpy()), expected)
        torch.testing.assert_close(self.encoder.similarity(a[0], b), expected[:1])
        torch.testing.assert_close(self.encoder.similarity_pairwise(a.numpy(), b), expected.diagonal())

    @unittest.mock.patch("mteb.get_tasks", local_tasks)
    def test_command_keeps_finished_tasks_and_writes_results_for_the_report(self):
        arguments = [self.run_folder, "--device", "cpu", "--tasks"]
        code, out, err = command(*arguments, "DigitsZeroShot")
        self.assertEqual((code, err), (0, ""), out)
        expected = f"{self.score(mteb_tasks.DigitsZeroShot()):.4f}"
        self.assertIn(f"DigitsZeroShot: accuracy {expected}\n", out)
        self.assertIn(f"1 of 1 tasks measured, results: {self.run_folder / 'mteb'}\n", out)
        code, _, err = command(*arguments, "DigitsComposed")
        self.assertEqual((code, err), (0, ""))
        results = json.loads((self.run_folder / "mteb/results.json").read_text())
        self.assertEqual([task["task"] for task in results["tasks"]], ["DigitsComposed", "DigitsZeroShot"])
        self.assertEqual(f"{results['tasks'][1]['metrics']['accuracy']:.4f}", expected)
        self.assertEqual(results["step"], 2)
        with unittest.mock.patch.object(tessera.mteb.Encoder, "encode", side_effect=AssertionError("embeds again")):
            self.assertIn(f"DigitsZeroShot: accuracy {expected}\n", command(*arguments, "DigitsZeroShot")[1])
            with self.assertRaisesRegex(AssertionError, "embeds again"):
                command(*arguments, "DigitsZeroShot", "--overwrite")
        table = subprocess.run([PROGRAMS / "tessera-report", self.run_folder], check=True, capture_output=True, text=True).stdout
        self.assertIn(f"| DigitsZeroShot accuracy (mteb test) ", table)
        rows = tessera.read_runs(self.run_folder)
        row = rows if isinstance(rows, list) else rows.to_dict("records")
        self.assertIn("DigitsComposed.ndcg_at_10", row[0])

        changed = self.folder / "changed.safetensors"
        model = tessera.load(self.run_folder, "cpu")
        with torch.no_grad():
            next(model.parameters()).add_(0.1)
        model.save(changed)
        code, _, err = command(changed, "--device", "cpu", "--output", self.run_folder / "mteb", "--tasks", "DigitsZeroShot")
        self.assertEqual((code, err), (0, ""))
        results = json.loads((self.run_folder / "mteb/results.json").read_text())
        self.assertEqual([task["task"] for task in results["tasks"]], ["DigitsZeroShot"], "scores of other weights are dropped")

    def test_a_task_that_cannot_be_measured_is_one_line(self):
        output = self.folder / "partly"
        with unittest.mock.patch("mteb.get_tasks", lambda names, languages: [Unreachable(), mteb_tasks.DigitsNearestNeighbors()]):
            code, out, err = command(self.run_folder, "--device", "cpu", "--output", output, "--tasks", "any")
        message = ("tessera mteb: DigitsZeroShot: its data set sklearn/digits is neither in the cache nor reachable (Couldn't reach "
                   "'sklearn/digits' on the Hub (OfflineModeIsEnabled)): run this once where there is a network, and set HF_HOME to that "
                   "cache\n")
        self.assertEqual((code, err), (1, message))
        self.assertIn("1 of 2 tasks measured", out)
        self.assertEqual([task["task"] for task in json.loads((output / "results.json").read_text())["tasks"]], ["DigitsNearestNeighbors"])
        with unittest.mock.patch("mteb.get_tasks", local_tasks), \
                unittest.mock.patch.object(tessera.mteb.Encoder, "encode", side_effect=RuntimeError("an image is broken\nC++ frames")):
            code, _, err = command(self.run_folder, "--device", "cpu", "--output", output, "--tasks", "DigitsZeroShot")
        self.assertEqual((code, err), (1, "tessera mteb: DigitsZeroShot: an image is broken\n"))
        with unittest.mock.patch("mteb.get_tasks", local_tasks), unittest.mock.patch.object(tessera.Model, "takes_texts", False):
            code, _, err = command(self.run_folder, "--device", "cpu", "--output", output, "--tasks", "DigitsZeroShot")
        self.assertEqual((code, err), (1, "tessera mteb: DigitsZeroShot: the model does not embed text\n"))

    def test_mistakes_are_one_line(self):
        for arguments, message in (
                ((self.run_folder,), "give either --tasks NAME ... or --benchmark NAME"),
                ((self.run_folder, "--tasks", "CIFAR10ZeroShots"), "CIFAR10ZeroShot"),
                ((self.run_folder, "--benchmark", "MIEB(heavy)"), "--list shows the names"),
                (("--tasks", "CIFAR10ZeroShot", "--"), "give a RUN"),
                ((self.folder / "no.safetensors", "--tasks", "CIFAR10ZeroShot"), "--output FOLDER")):
            code, _, err = command(*arguments)
            self.assertEqual((code, err.count("\n")), (2, 1), err)
            self.assertIn(message, err)
        with unittest.mock.patch.dict(sys.modules, {"mteb": None}):
            code, _, err = command(self.run_folder, "--tasks", "CIFAR10ZeroShot")
        self.assertEqual(code, 2)
        self.assertRegex(err, r"^tessera mteb: the package mteb, version 2 or newer, is not installed in .*: .* -m pip install "
                         r"'mteb\[image\]' torch==[0-9.]+\n$")

    def test_list_shows_tasks_and_benchmarks_with_images(self):
        code, out, err = command("--list", "cifar10zero")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"(?m)^CIFAR10ZeroShot +ZeroShotClassification +image\+text +accuracy$")
        self.assertIn("--benchmark 'MIEB(lite)': ", command("--list", "mieb")[1])


if __name__ == "__main__":
    unittest.main(warnings="ignore")
