#!/usr/bin/env python3
"""Checks the commands in pages, messages and comments: the program's --help must list their options, and the configurations that they name
must be shipped. Also checks that every script prints its usage."""
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("TESSERA_BUILD", ROOT / "build")) / "bin"
FOLDERS = ("cmake", "configs", "docs", "include", "python", "scripts", "src", "tools")
PROGRAMS = ("evaluate", "trainer", "tessera-bench", "tessera-convert", "tessera-data", "tessera-embed", "tessera-index", "tessera-probe", "tessera-serve",
            "tessera-report")
PROGRAM = re.compile(r"(?<![\w.-])(%s)\"?(?=[ `\n])" % "|".join(PROGRAMS))
ARGUMENT = re.compile(r"--[a-z][\w-]*[ =][\"\w$/{}.]*$")  # matches the text before a program name if the name is the value of an option
END = re.compile(r"[`|;#]|&&|\"\)|(?<![\w/.-])(?:%s)(?= )" % "|".join(PROGRAMS))
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def text_of(file):
    """Returns the file's text after joining continued command lines and adjacent string literals."""
    text = file.read_text(encoding="utf-8")
    if file.suffix in (".h", ".cpp", ".cu"):
        text = re.sub(r'"\s*\n\s*(?://[^\n]*\n\s*)?"', "", text).replace("\\n", "\n").replace('\\"', "'")
    return text.replace("\\\n", " ")


def commands(text):
    """Yields each command in a text as (program, list of the words after it)."""
    for found in PROGRAM.finditer(text):
        if ARGUMENT.search(text[max(0, found.start() - 80):found.start()]):
            continue
        yield found.group(1), END.split(text[found.end():].split("\n", 1)[0])[0].split()


def texts():
    for file in [*ROOT.glob("*.md")] + [file for folder in FOLDERS for file in (ROOT / folder).rglob("*")]:
        if file.suffix in (".md", ".yaml", ".cmake", ".sh", ".py", ".h", ".cpp"):
            yield file.relative_to(ROOT), text_of(file)


@functools.lru_cache(None)
def help_of(*command):
    return subprocess.run([BIN / command[0], *command[1:], "--help"], capture_output=True, text=True, check=True).stdout


def options_of(program, words):
    """Returns the options in the --help of a program and, if the first word is a subcommand, in the subcommand's --help."""
    subcommands = re.findall(r"^  ([a-z][a-z-]*)  ", help_of(program).split("Subcommands:")[-1], re.M) if "Subcommands:" in help_of(program) else []
    parts = [help_of(program)] + [help_of(program, word) for word in words[:1] if word in subcommands]
    return {option for part in parts for option in OPTION.findall(part)}


class Commands(unittest.TestCase):
    def test_are_found(self):
        text = 'run "$bin/trainer" --config a --set x=1 && build/bin/evaluate --suite s; `trainer` takes --no, tessera-data pack --out f | cat --x'
        self.assertEqual(list(commands(text)), [("trainer", ["--config", "a", "--set", "x=1"]), ("evaluate", ["--suite", "s"]),
                                                ("trainer", []), ("tessera-data", ["pack", "--out", "f"])])

    @unittest.skipUnless((BIN / "trainer").exists(), "the programs are not built")
    def test_use_options_that_exist(self):
        seen = 0
        for name, text in texts():
            for program, words in commands(text):
                if not (BIN / program).exists():
                    continue
                known = options_of(program, words)
                own = re.sub(r"'[^']*('|$)", "''", " ".join(words))  # removes quoted parts, whose options belong to another program
                for option in OPTION.findall(own):
                    seen += 1
                    with self.subTest(file=str(name), command=f"{program} {' '.join(words)}"):
                        self.assertIn(option, known)
        self.assertGreater(seen, 100)

    def test_name_configurations_that_ship(self):
        recipes = {f"{file.parent.name}_{file.stem}" for file in (ROOT / "configs").glob("*/*.yaml")}
        for name, text in texts():
            for program, words in commands(text):
                for option, value in zip(words, words[1:]):
                    value = value.strip("'\".,:()")
                    if option == "--config" and re.fullmatch(r"[a-z]\w*", value) and len(value) > 1:
                        with self.subTest(file=str(name)):
                            self.assertIn(value, recipes, f"{program} --config {value}")


    def test_for_many_gpus_give_recipes_a_batch_size(self):
        many = [(name, line) for name, text in texts() for line in text.splitlines()
                if re.search(r"\b(nproc|srun|sbatch|torchrun)\b|torchrun_train.sh --", line) and re.search(r"\w[/_]vit[bl]\d\d", line)]
        self.assertGreater(len(many), 5)
        for name, line in many:
            with self.subTest(file=str(name)):
                self.assertRegex(line, r"data\.loader\.batch_size=|training\.global_batch=")


class Scripts(unittest.TestCase):
    def test_print_their_usage(self):
        scripts = [file for file in sorted((ROOT / "scripts").rglob("*.sh")) if file.read_text().startswith("#!")]
        self.assertGreater(len(scripts), 8)
        for script in scripts:
            with self.subTest(script=str(script.relative_to(ROOT))):
                self.assertIn("--help)", script.read_text(), "does not know --help")  # otherwise the call below would run the script
                done = subprocess.run(["bash", script, "--help"], capture_output=True, text=True, timeout=60, cwd="/", check=True)
                self.assertRegex(done.stdout, r"^usage: ")

    def test_an_option_without_its_value_is_named(self):
        done = subprocess.run(["bash", ROOT / "scripts/torchrun_train.sh", "--nodes"], capture_output=True, text=True)
        self.assertIn("--nodes needs a number", done.stderr)

    def test_rows_are_sent_to_wandb_without_the_line_that_names_the_run(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "wandb.py").write_text(
                "import unittest.mock\ndef init(**settings):\n    print(settings['id'])\n    return unittest.mock.Mock(log=print)\n")
            done = subprocess.run([sys.executable, ROOT / "scripts/log_to_wandb.py"], text=True, check=True, capture_output=True,
                                  input='{"start": {"step": 0}}\n{"step": 1, "terms": {"loss_i2t": 2}}\n',
                                  env={**os.environ, "PYTHONPATH": folder, "TESSERA_RUN_FOLDER": folder, "TESSERA_RUN_NAME": "a",
                                       "TESSERA_RUN_ID": "1f"})
        self.assertEqual(done.stdout, "1f\n{'step': 1, 'terms/loss_i2t': 2}\n")


if __name__ == "__main__":
    unittest.main()
