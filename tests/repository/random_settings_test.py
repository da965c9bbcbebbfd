#!/usr/bin/env python3
"""Checks scripts/check/random_settings.py without running the trainer: the settings that it reads from the page, the cases that it makes,
and its verdicts on answers."""
import pathlib
import random
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/check"))
sys.dont_write_bytecode = True
import random_settings  # noqa: E402

PAGE = """## Keys

| key | type | default | meaning |
| --- | --- | --- | --- |
| `data.loader.threads` | int | `2` | decoding threads (at least 1) |
| `data.train` | {name: NAME, settings...} |  | source of the training pairs |

## Objectives

Chosen by `objective`: {name: NAME, settings...}.

### `clip`

| key | type | default | meaning |
| --- | --- | --- | --- |
| `hard_negatives` | string | `none` | which texts an image is also compared with (one of none, own and all) |
| `label_smoothing` | float | `0.0` | share of each pair's target (at least 0 and below 1) |
"""


def problem(code, text, refused="", names=("objective.chunk", "chunk"), typed=("objective.chnk",)):
    return random_settings.problem_of(random_settings.Case([], list(names), list(typed), refused), code, text)


class Settings(unittest.TestCase):
    def test_are_read_with_their_bounds_and_choices(self):
        table = random_settings.Table(PAGE)
        self.assertEqual([setting.key for setting in table.keys], ["data.loader.threads", "data.train"])
        self.assertEqual(table.keys[0].bounds(), (1, None, (True, True)))
        choice, smoothing = table.modules["objective"]["clip"]
        self.assertEqual(choice.choices(), ["none", "own", "all"])
        self.assertEqual(smoothing.bounds(), (0, 1, (True, False)))

    def test_of_the_page_are_found(self):
        table = random_settings.Table((ROOT / "docs/configuration.md").read_text(encoding="utf-8"))
        table.check()
        self.assertIn("sparc", table.modules["objective"])
        self.assertIn("zero_shot", table.modules["evaluation.tasks"])


class Cases(unittest.TestCase):
    def setUp(self):
        self.table = random_settings.Table((ROOT / "docs/configuration.md").read_text(encoding="utf-8"))

    def test_depend_only_on_the_seed(self):
        first, again = (random_settings.make_case(self.table, random.Random("0 5")) for _ in range(2))
        self.assertEqual(first, again)

    def test_hold_every_kind_of_mistake_and_valid_ones(self):
        cases = [random_settings.make_case(self.table, random.Random(f"0 {index}")) for index in range(500)]
        self.assertEqual({case.refused for case in cases},
                         {"", "a misspelled key", "a number beyond its bounds", "a value of another type"})

    def test_hold_very_large_counts(self):
        cases = [random_settings.make_case(self.table, random.Random(f"0 {index}")) for index in range(500)]
        counts = [text for case in cases for text in case.assignments if text.split("=")[-1] in random_settings.COUNTS]
        self.assertGreater(len(counts), 20)

    def test_valid_numbers_keep_to_their_bounds(self):
        for index in range(200):
            draw = random.Random(index)
            for setting in random_settings.Table(PAGE).modules["objective"]["clip"][1:]:
                self.assertTrue(0 <= float(random_settings.valid_number(setting, draw)) < 1)
                self.assertFalse(0 <= float(random_settings.beyond_bounds(setting, draw)) < 1)


class Answers(unittest.TestCase):
    def test_that_are_right_have_no_problem(self):
        self.assertEqual(problem(0, ""), "")
        self.assertEqual(problem(2, "12:00:00 warning slow\ntrainer: --set: objective.chunk: expected at least 1, got 0\n", "a number"), "")

    def test_that_are_wrong_are_named(self):
        for expected, code, text in (("does not end in time", None, ""), ("ended by signal 11", -11, ""), ("ended by signal 6", 134, "abort"),
                                     ("reports an internal error", 1, "trainer: internal error: x"), ("exit code 3", 3, ""),
                                     ("exit code 2 with 2 lines", 2, "trainer: chunk\nmore\n"), ("exit code 2 with 0 lines", 2, ""),
                                     ("the line names no setting of the case", 2, "trainer: something else\n"),
                                     ("suggests what was typed", 2, "trainer: --set: objective.chnk: did you mean objective.chnk?\n")):
            with self.subTest(expected):
                self.assertEqual(problem(code, text), expected)
        self.assertEqual(problem(0, "", "a misspelled key"), "accepts a misspelled key")


if __name__ == "__main__":
    unittest.main()
