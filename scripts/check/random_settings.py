#!/usr/bin/env python3
"""Runs the trainer with random settings, valid and invalid ones, and checks its answers. Each case is a dry run of a tiny model on the
built-in shapes, with one to three settings of docs/configuration.md, the page that the trainer itself writes.

  scripts/check/random_settings.py                                    # 2,000 cases
  scripts/check/random_settings.py --cases 200 --seed 7 --jobs 4

A case must end within --timeout seconds, with exit code 0, with exit code 2 and exactly one line that names a setting of the case, or with
exit code 1 and a line that reports too little memory.
The trainer must refuse a misspelled key, a value of the wrong type, and a number beyond the documented bounds. It must never crash, report
an internal error, or suggest exactly what was typed, and very large counts (of layers, say) must not take long. Each process may use
--memory GiB, so that a model that is too large fails instead of filling the machine. Failures are printed with the command that repeats
them. Needs only the standard library and the built programs (scripts/setup.sh).

Exit code: 0 if all cases pass, 1 otherwise.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import pathlib
import random
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = """\
run: {folder: FOLDER/run}
data:
  train: {name: shapes, size: 12, image_size: 16}
  validation: {name: shapes, size: 4, image_size: 16}
  loader: {batch_size: 4, threads: 1}
tokenizer: {name: wordpiece, vocab: ROOT/configs/vocabularies/shapes-wordpiece/vocab.txt, context_length: 16}
model:
  preprocessing: {image_size: 16}
  image: {encoder: {name: vit, patch_size: 8, width: 16, layers: 1, heads: 2}, readout: {name: cls}, projection: {name: linear, embed_dim: 8}}
  text: {encoder: {name: text_transformer, width: 16, layers: 1, heads: 2}, readout: {name: eos}, projection: {name: linear, embed_dim: 8}}
objective: {name: clip}
optimizer: {name: adamw, lr: 1.0e-3}
training: {steps: 4, threads: 1, device: cpu}
log: {peak_tflops: 0.1}
"""
# Small sizes for the modules of a case, because the defaults of many modules are those of large models.
SMALL = {"width": 16, "layers": 1, "heads": 2, "patch_size": 8, "embed_dim": 8, "out_dim": 16, "hidden_dim": 16, "bottleneck_dim": 8,
         "slots": 4, "slot_width": 4, "image_size": 16, "size": 12, "num_prototypes": 8}  # only used for settings of type int
WORDS = ["x", "no/such/file", "a b", "", "~x", "caf\u00e9", "[", "0x10", "-", "a" * 300]
NUMBERS = ["0", "-1", "1", "2", "3", "7", "16", "100", "1000000000", "4294967296", "9223372036854775807", "99999999999999999999", "0.5",
           "-0.5", "1e-30", "1e30", "1e400", ".nan", ".inf", "-.inf"]
COUNTS = ["100000", "1000000", "1000000000", "9000000000000000"]  # of layers, samples, and so on
SUGGESTION = re.compile(r"did you mean ([^?]+)\?")
LOG_LINE = re.compile(r"\d\d:\d\d:\d\d (debug|info|warning|error) ")


@dataclasses.dataclass
class Setting:
    key: str            # without the module's prefix, for example heads
    type: str
    meaning: str
    module: str = None  # for example vit; None for a setting outside of modules

    def bounds(self):
        """Returns [lowest, highest], which the end of the meaning states, and whether these bounds themselves are valid."""
        number = r"(-?[\d.]+(?:e[+-]?\d+)?)"
        for pattern, ends in ((rf"\(at least {number}\)$", (True, True)), (rf"\(above {number}\)$", (False, True)),
                              (rf"\(from {number} to {number}\)$", (True, True)), (rf"\(at least {number} and below {number}\)$", (True, False))):
            if found := re.search(pattern, self.meaning):
                low, high = (*map(float, found.groups()), None)[:2]
                return low, high, ends
        return None, None, (True, True)

    def choices(self):
        found = re.search(r"\(one of (.+)\)$", self.meaning)
        return re.split(r", | and ", found[1]) if found else []


@dataclasses.dataclass
class Case:
    assignments: list  # KEY=VALUE for --set
    names: list        # an error message must contain one of these names
    typed: list        # keys and values as typed; the trainer must not suggest any of them
    refused: str = ""  # why the trainer must refuse the case; empty if it may accept it


class Table:
    """The settings of the configuration, and the modules with their settings, read from the page that the trainer writes."""

    def __init__(self, text):
        self.keys, self.modules = [], {}  # `modules` maps a place ("objective") to {module: [Setting]}
        places, module = [], None
        for line in text.splitlines():
            if line.startswith("## "):
                places, module = [], None
            elif line.startswith("Chosen by "):
                places = re.findall(r"`([a-z_.]+)`", line.split(":")[0])
                places = [place for place in places if place != "source"]
            elif found := re.fullmatch(r"### `(.+)`", line):
                module = found[1]
                for place in places:
                    self.modules.setdefault(place, {})[module] = []
            elif found := re.fullmatch(r"\| `([^`]+)` \| ([^|]+) \| (?:`.*?`|) ?\| (.*) \|", line):
                setting = Setting(found[1], found[2].strip(), found[3], module)
                if module is None and not places:
                    self.keys.append(setting)
                for place in places if module else []:
                    self.modules[place][module].append(setting)
        # Keeps only settings with a full path. The section about LoRA lists keys without one.
        self.keys = [setting for setting in self.keys if "." in setting.key or setting.key == "seed"]

    def check(self):
        if len(self.keys) < 80 or len(self.modules) < 8:
            sys.exit(f"random_settings.py: found only {len(self.keys)} settings and {len(self.modules)} kinds of modules: did the page change?")


def valid_number(setting, draw):
    low, high, (low_valid, high_valid) = setting.bounds()
    whole = "int" in setting.type
    low = 0.0 if low is None else low
    low += 0 if low_valid else 1 if whole else 1e-6
    high = low + 4 if high is None else min(high, max(low, 64)) - (0 if high_valid else 1e-3)
    value = low if draw.random() < 0.2 else draw.uniform(low, high)
    return str(round(value)) if whole else f"{value:.6g}"


def valid_value(setting, draw):
    kind = setting.type
    if "null" in kind and draw.random() < 0.2:
        return "null"
    if kind.startswith("bool"):
        return draw.choice(["true", "false"])
    if found := re.match(r"list of (\d) (int|float)", kind):
        part = dataclasses.replace(setting, type=found[2])
        return "[" + ", ".join(sorted((valid_number(part, draw) for _ in range(int(found[1]))), key=float)) + "]"
    if re.match(r"list of (int|float)", kind):
        part = dataclasses.replace(setting, type=kind.split()[2])
        return "[" + ", ".join(valid_number(part, draw) for _ in range(draw.randint(0, 3))) + "]"
    if setting.choices():
        choice = draw.choice(setting.choices())
        return f"[{choice}]" if kind.startswith("list") else choice
    if kind.startswith(("int", "float")):
        return valid_number(setting, draw)
    if kind.startswith("list"):
        return draw.choice(["[]", "[x]", "[x, y]"])
    if kind.startswith(("{name", "group", "name")):
        return draw.choice(["{}", "{name: x}", "x"])
    return yaml_text(draw.choice(WORDS))


def yaml_text(word):
    return "'" + word.replace("'", "''") + "'"


def beyond_bounds(setting, draw):
    """Returns a number that the documented bounds exclude, or None if there is none."""
    low, high, (low_valid, high_valid) = setting.bounds()
    if not setting.type.startswith(("int", "float")) or (low is None and high is None):
        return None
    step = 1 if "int" in setting.type else 1e-3
    outside = [] if low is None else [low - step, low - 1000] + ([] if low_valid else [low])
    outside += [] if high is None else [high + step, high + 1000] + ([] if high_valid else [high])
    value = draw.choice(outside)
    return str(round(value)) if "int" in setting.type else f"{value:.9g}"


def of_another_type(setting, draw):
    """Returns a value that the type excludes, or None if the type accepts any text."""
    kind = setting.type
    if kind.startswith("bool"):
        return draw.choice(["maybe", "[]", "{}", "2", "''"])
    if kind in ("int", "int or null"):
        return draw.choice(["x", "1.5", "[1]", "{}", "true", ".nan", "1e400", "99999999999999999999", "''"])
    if kind in ("float", "float or null"):
        return draw.choice(["x", "[1]", "{}", "true", "''", "1,5"])
    if re.match(r"list of \d", kind):
        return draw.choice(["[]", "[1]", "[x, y, z, v]", "{}"])
    return None


def misspelled(key, draw):
    """Returns the key after leaving out, doubling or replacing a letter of its last part, or swapping two neighboring letters."""
    head, _, last = key.rpartition(".")
    at = draw.randrange(len(last))
    wrong = draw.choice([last[:at] + last[at + 1:], last[:at] + last[at] + last[at:], last[:at] + "q" + last[at + 1:],
                         last[:at] + last[at:at + 2][::-1] + last[at + 2:]])
    return f"{head}.{wrong}" if head else wrong


def overlap(one, other):
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


def make_case(table, draw):
    """Returns a case with one to three settings. At most the first is wrong on purpose. No later setting replaces an earlier one."""
    case, taken = Case([], [], []), []
    for number in range(draw.choice([1, 1, 2, 3])):
        of_module = draw.random() < 0.5
        setting, place = draw.choice(table.keys), draw.choice(sorted(table.modules))
        place = place if of_module else setting.key
        if any(overlap(place, other) for other in taken):
            continue
        taken.append(place)
        prefix, siblings = "", {other.key for other in table.keys}
        if of_module:
            module = draw.choice(sorted(table.modules[place]))
            settings = table.modules[place][module]
            if place == "evaluation.tasks":
                case.assignments.append(f"{place}=[{{name: {module}}}]")
                prefix = f"{place}.0."
            else:
                case.assignments.append(f"{place}={module}")
                prefix = f"{place}."
                case.assignments += [f"{prefix}{other.key}={SMALL[other.key]}" for other in settings if other.key in SMALL and other.type == "int"]
            case.names += [place, place.split(".")[0], module]
            if not settings:
                continue
            setting, siblings = draw.choice(settings), {other.key for other in settings}
        key, value, way = setting.key, valid_value(setting, draw), draw.random() if number == 0 else 0
        if way > 0.8:
            key = misspelled(setting.key, draw)
            if key.rpartition(".")[2] and key not in siblings:
                case.refused = "a misspelled key"
        elif way > 0.65 and (outside := beyond_bounds(setting, draw)) is not None:
            value, case.refused = outside, "a number beyond its bounds"
        elif way > 0.5 and (other := of_another_type(setting, draw)) is not None:
            value, case.refused = other, "a value of another type"
        elif way > 0.3:
            value = draw.choice(COUNTS if "int" in setting.type and way > 0.38 else NUMBERS)
        case.assignments.append(f"{prefix}{key}={value}")
        case.names += [prefix + key, prefix.split(".")[0], *key.split(".")]
        case.typed += [prefix + key, *([key] if number == 0 else []), value.strip("'")]  # a misspelled layerq may suggest a later layers
    return case


def problem_of(case, code, text):
    """Returns what is wrong with the trainer's answer, or an empty string."""
    if code is None:
        return "does not end in time"
    if code < 0 or code >= 128:
        return f"ended by signal {-code if code < 0 else code - 128}"
    if "internal error" in text:
        return "reports an internal error"
    for suggested in SUGGESTION.findall(text):
        if suggested.strip() in case.typed:
            return "suggests what was typed"
    if code == 0:
        return f"accepts {case.refused}" if case.refused else ""
    if code == 1 and "not enough memory" in text:
        return f"accepts {case.refused}" if case.refused else ""
    if code != 2:
        return f"exit code {code}"
    lines = [line for line in text.splitlines() if not LOG_LINE.match(line)]
    if len(lines) != 1:
        return f"exit code 2 with {len(lines)} lines"
    if not any(name and name in lines[0] for name in case.names):
        return "the line names no setting of the case"
    return ""


def command_of(case, args):
    overrides = ["--set", *case.assignments] if case.assignments else []
    return [str(args.trainer), "--config", str(args.work / "tiny.yaml"), "--dry-run", *overrides]


def answer(case, args):
    """Returns the exit code (None after the time limit) and the text of standard error."""
    limited = ["bash", "-c", f'ulimit -c 0 -d {int(args.memory * 2**20)} && exec "$@"', "limited", *command_of(case, args)]
    try:
        done = subprocess.run(limited, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=args.timeout, cwd=args.work)
    except subprocess.TimeoutExpired as late:
        return None, (late.stderr or b"").decode(errors="replace")
    return done.returncode, done.stderr.decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=20, metavar="SECONDS", help="for each case (default: %(default)s)")
    parser.add_argument("--memory", type=float, default=4, metavar="GIB", help="of each process (default: %(default)s)")
    parser.add_argument("--trainer", type=pathlib.Path, default=ROOT / "build/bin/trainer")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/random_settings", help="folder of the tiny configuration")
    args = parser.parse_args()
    args.trainer, args.work = args.trainer.resolve(), args.work.resolve()
    if not args.trainer.exists():
        sys.exit(f"random_settings.py: {args.trainer} does not exist: build it (scripts/setup.sh), or pass it with --trainer")
    args.work.mkdir(parents=True, exist_ok=True)
    (args.work / "tiny.yaml").write_text(TINY.replace("FOLDER", str(args.work)).replace("ROOT", str(ROOT)))
    subprocess.run([args.trainer, "--write-configuration-doc", args.work / "configuration.md"], check=True)
    table = Table((args.work / "configuration.md").read_text(encoding="utf-8"))
    table.check()
    base = Case([], ["tiny.yaml"], [])
    code, text = answer(base, args)
    if code != 0:
        sys.exit(f"random_settings.py: the tiny configuration ends with {code}: {text}")

    cases = [make_case(table, random.Random(f"{args.seed} {index}")) for index in range(args.cases)]
    ends, problems = collections.Counter(), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for index, (case, (code, text)) in enumerate(zip(cases, pool.map(lambda case: answer(case, args), cases))):
            problem = problem_of(case, code, text)
            ends["accepted" if code == 0 else "refused" if code == 2 else "failed"] += 1
            if problem:
                problems[problem] += 1
                last = text.strip().splitlines()[-1:] or ["(no output)"]
                print(f"case {index}: {problem}\n  {last[0][:300]}\n  {shlex.join(command_of(case, args))}", flush=True)
    print(f"{args.cases} cases, seed {args.seed}: " + ", ".join(f"{count} {end}" for end, count in sorted(ends.items())))
    for problem, count in problems.most_common():
        print(f"{count} x {problem}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
