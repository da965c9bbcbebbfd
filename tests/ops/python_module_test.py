"""Tests python/tessera/functional.py and _library.py: the examples in their docstrings and in docs/python.md, and how the
module finds its library. ctest runs this with the Python of LibTorch's environment:

  python tests/ops/python_module_test.py build/lib/libtessera.so

Exits with code 77, which ctest reports as skipped, if torch cannot be imported.
"""
import contextlib
import doctest
import io
import os
import pathlib
import re
import shutil
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
LIBRARY = pathlib.Path(sys.argv.pop(1))
os.environ["TESSERA_LIBRARY"] = str(LIBRARY)
sys.path.insert(0, str(ROOT / "python"))
import tessera  # noqa: E402
from tessera import functional  # noqa: E402

SHOWN = re.compile(r"^ *print\(.*\)\s+# (.*)$", re.M)


def blocks_of_operators():
    """Returns the Python code blocks about operators in docs/python.md. Other blocks need files."""
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8").split("\n## Operators")[1].split("\n## Models in plain PyTorch")[0]
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


def import_with(library, module=None):
    """Imports and uses tessera in a new Python process with TESSERA_LIBRARY=library. Returns its output or its last error line."""
    environment = {**os.environ, "PYTHONPATH": str(module or ROOT / "python")}
    environment.pop("TESSERA_LIBRARY")
    if library:
        environment["TESSERA_LIBRARY"] = str(library)
    script = "import tessera, torch; print(tessera.flops_regularizer(torch.ones(2, 3)), tessera.load_library())"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    return ran.stdout + ran.stderr.strip().splitlines()[-1] if ran.returncode else ran.stdout


class Examples(unittest.TestCase):
    def test_examples_of_the_docstrings_run(self):
        for name in functional.__all__:
            self.assertTrue(getattr(functional, name).__doc__, name)
            self.assertIs(getattr(tessera, name), getattr(functional, name))
        outcome = doctest.testmod(functional)
        self.assertEqual(outcome.failed, 0)
        self.assertGreaterEqual(outcome.attempted, 12)

    def test_examples_of_the_page_print_what_it_shows(self):
        scope = {}
        for block in blocks_of_operators():
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block, "docs/python.md", "exec"), scope)
            self.assertEqual(printed.getvalue().splitlines(), SHOWN.findall(block), block)
        self.assertIn("grouped", scope)


class Operators(unittest.TestCase):
    def test_compile_captures_the_full_graph(self):
        words, patches = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 5, 4, requires_grad=True)
        compiled = torch.compile(lambda w, p: tessera.sparsify_group(w, p).square().sum(), backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(words, patches), tessera.sparsify_group(words, patches).square().sum())

    def test_a_mask_of_none_means_all(self):
        patches, words = torch.randn(2, 5, 4), torch.randn(3, 6, 4)
        kept = [torch.ones(x.shape[:2], dtype=torch.bool) for x in (patches, words)]
        for ours, theirs in zip(tessera.max_similarity(patches, words), tessera.max_similarity(patches, words, *kept)):
            self.assertTrue(torch.equal(ours, theirs))

    def test_an_argument_of_a_wrong_type_is_reported_in_one_line(self):
        tokens = torch.ones(1, 2, 3)
        for use, said in ((lambda: tessera.sparsify_group(1, 2, 3), "sparsify_group: expected a value of type 'Tensor' for argument 'text_tokens'"),
                          (lambda: tessera.sparsify_group(1, tokens), "'text_tokens'"),
                          (lambda: tessera.sparsify_group(tokens, tokens, threshold="none"), "'threshold'"),
                          (lambda: tessera.flops_regularizer([[1.0]]), "flops_regularizer: expected a value of type 'Tensor'"),
                          (lambda: tessera.roi_align(tokens.unsqueeze(0), torch.ones(1, 4), 0), "'image'")):
            with self.assertRaisesRegex(RuntimeError, said) as caught:
                use()
            self.assertEqual(len(str(caught.exception).splitlines()), 1)

    def test_a_bias_of_none_means_zeros(self):
        tokens, table = torch.randn(2, 5, 4), torch.randn(7, 4)
        ours, theirs = (tessera.token_max_projection(tokens, None, table, *bias) for bias in ((None,), (torch.zeros(7),)))
        self.assertTrue(torch.equal(ours[0], theirs[0]))


class Finding(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()

    def test_next_to_the_source_tree_and_the_installation(self):
        for module, library in (("tree/python", "tree/build/lib"), ("prefix/share/tessera/python", "prefix/lib"),
                                ("usr/share/tessera/python", "usr/lib/x86_64-linux-gnu")):
            (self.folder / library).mkdir(parents=True)
            shutil.copytree(ROOT / "python/tessera", self.folder / module / "tessera")
            (self.folder / library / LIBRARY.name).symlink_to(LIBRARY.resolve())
            self.assertEqual(import_with(None, self.folder / module), f"tensor(3.) {self.folder / library / LIBRARY.name}\n")

    def test_another_pytorch_is_a_one_line_error(self):
        other = self.folder / LIBRARY.name
        other.write_bytes(LIBRARY.read_bytes().replace(b"tessera_ops for PyTorch 2.", b"tessera_ops for PyTorch 9."))
        self.assertRegex(import_with(other), rf"^ImportError: tessera: {other} was built for PyTorch 9\.\d+, but this is PyTorch "
                                             rf"{re.escape(torch.__version__)}: pip install 'torch==9\.\d+\.\*' or tessera-[\d.]+\+torch2\.\d+-py3-none-\w+"
                                             r"\.whl; in a source tree, TESSERA_TORCH=2\.\d+ scripts/setup\.sh builds for this PyTorch\n?$")
        other.write_text("no library")
        self.assertEqual(import_with(other), f"ImportError: tessera: {other} is not Tessera's library, or is older than "
                                             "this module")

    def test_missing_library_names_the_searched_folders(self):
        self.assertEqual(import_with(self.folder / "x.so"),
                         f"ImportError: tessera: TESSERA_LIBRARY names {self.folder}/x.so, but there is no such file")
        alone = self.folder / "a/b/c"
        alone.mkdir(parents=True)
        shutil.copytree(ROOT / "python/tessera", alone / "tessera")
        self.assertRegex(import_with(None, alone), rf"^ImportError: tessera: no libtessera.so or libtessera_ops.so in {alone}/tessera/lib, {alone.parent}/build/lib, .*: "
                                                   r"build Tessera \(scripts/setup.sh\), or name the file in TESSERA_LIBRARY$")


if __name__ == "__main__":
    unittest.main()
