"""Draws configs/page.html in a headless Chromium for each kind of page. Skipped if there is no Chromium or no dygraphs."""
import json
import pathlib
import subprocess
import tempfile
import unittest

import browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path("/usr/share/javascript/dygraphs/dygraph.min.js")
CURVES = {"steps": [[1, 2, 3]], "values": {"loss": {"steps": 0, "y": [3, 2, 1]}, "terms.a": {"steps": 0, "y": [3, 2, 1], "low": [1, 1, 1],
          "high": [4, 4, 4]}, "evaluation.knn.top1": {"steps": 0, "y": [0.25, 0.5, 0.75]}}}
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
RUN = {"kind": "run", "title": "a <b>", "curves": CURVES, "marks": [[2, "resumed"]], "chance": {"a": 2.5}, "facts": [["Objective", "clip"]], "files": ["log.txt"],
       "status": {"state": "finished", "good": True, "note": "", "step": 3, "total_steps": 3, "samples": 1234, "seconds": 65, "seconds_left": 0,
                  "skipped": {"bad_image": 2}, "written": "now", "reload_seconds": 30},
       "evaluated": [{"name": "knn.top1", "percent": True, "better": "higher", "last": {"step": 3, "value": 0.75}, "best": {"step": 3, "value": 0.75}}],
       "evaluated_data": {"knn": "d"}, "failed": [], "readings": {"s": [[1, "said"]]}, "checkpoints": [{"name": "step_3", "files": []}], "warnings": ["w"]}
CARDS = [{"type": "image", "title": "Sheets", "items": [
             {"quote": "q", "tag": {"text": "found first", "kind": "good"}, "images": [{"src": PIXEL, "name": "a/b.png", "box": "right"}]},
             {"images": [{"src": PIXEL}], "list": [{"text": "listed", "right": True}]},
             {"images": [{"src": PIXEL}], "truth": "red", "right": True, "bars": [["red", 0.5, True]]},
             {"images": [], "groups": [{"text": "word", "phrase": True, "group": 0, "weights": [0.5]}]}]},
         {"type": "overlay", "title": "Maps", "classes": ["sky"], "background": -1, "items": [
             {"cloud": [["token", 1]], "legend": [0], "images": [{"src": PIXEL, "heat": {"values": [0, 1], "rows": 1, "columns": 2}},
                                                                 {"src": PIXEL, "mask": PIXEL, "tokens": [["", 0], [" t", 1]]}]}]},
         {"type": "bars", "title": "Bars", "values": [["cat", 0.25], ["dog", 0.5]]}, {"type": "table", "title": "Confusion", "names": ["c"], "rows": [[3]]},
         {"type": "table", "header": ["h"], "rows": [["cell"]]}, {"type": "text", "text": "plain"},
         {"type": "curve", "charts": [{"title": "Cost", "log": True, "lines": [["clip", [1, 2], [10, 100]]]}]},
         {"type": "curve", "plots": [{"title": "map", "classes": ["sky"], "points": [{"x": 0, "y": 0, "class": 0, "is_text": True, "name": "point"}]}]}]
RESULT = {"task": "knn", "data_text": "d, 3 images", "metric_names": ["top1"], "metrics": {"top1": 0.5}, "rules": {"top1": {"percent": True}}, "seconds": 1,
          "skipped": {}, "intervals": {"top1": [0.4, 0.6]}, "chance": {"top1": 0.25}, "rule": "top 1: a share.", "settings_text": "k: 1", "cards": CARDS}
EVALUATION = {"kind": "evaluation", "title": "run", "facts": [], "curves": CURVES, "results": [RESULT], "failed": [{"task": "t", "reason": "lost"}]}
SCORE = {"task": "knn", "data": "d", "metric": "top1", "rule": "a share", "percent": True, "better": "higher", "values": [0.5, None], "measured": [True, False],
         "steps": [3, None], "best": [True, False], "like_best": [False, True], "intervals": [[0.4, 0.6], None], "lone": False, "steps_differ": False,
         "differences": [{"first": "a", "second": "b", "value": 0.1, "interval": [0.05, 0.15], "beyond_chance": True}]}
COMPARISON = {"kind": "comparison", "title": "Comparison", "runs": [{"name": name, "state": "finished", "has_settings": True, "curves": CURVES} for name in "ab"],
              "scores": [SCORE], "settings": [{"key": "seed", "values": ["1", None]}], "percent": ["knn.top1"], "lone": ["only a: x"], "note_on_steps": ""}
SAMPLES = {"kind": "cards", "title": "dry run", "facts": [["Date", "now"]], "sections": [{"title": "Samples", "note": "n", "cards": [
    {"type": "image", "layout": "samples", "items": [{"images": [{"src": PIXEL}], "texts": [["a caption", "2 tokens"]]}]}]}]}


@unittest.skipUnless(not browser.MISSING, browser.MISSING)
@unittest.skipUnless(LIBRARY.exists(), "dygraphs is missing: apt-get install libjs-dygraphs")
class Page(unittest.TestCase):
    def write(self, folder, data):
        """Writes a page, and returns its address."""
        text = (ROOT / "configs/page.html").read_text().replace("@DATA@", json.dumps(data).replace("<", "\\u003c"))
        page = pathlib.Path(folder) / "page.html"
        page.write_text(text.replace("@DYGRAPHS@", LIBRARY.read_text()))
        return page.as_uri()

    def draw(self, data):
        """Returns the elements of the page that the script has drawn."""
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run([browser.CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile", "--enable-logging=stderr",
                                  "--virtual-time-budget=2000", "--dump-dom", self.write(folder, data)], capture_output=True, text=True, check=True)
        self.assertNotIn("Uncaught", run.stderr)
        return run.stdout[run.stdout.index("<main>"):run.stdout.index("</main>")]

    def expect(self, data, *texts):
        drawn = self.draw(data)
        for text in texts:
            self.assertIn(text, drawn)

    def test_shows_a_run(self):
        self.expect(RUN, "a &lt;b&gt;", "step 3 of 3", "1m 05s", "75.00%", "Loss", "<canvas", "bad_image", "said",
                    "Loss, resumed at step 2")

    def test_shows_every_card_of_an_evaluation(self):
        self.expect(EVALUATION, "50.00%", "[40.0, 60.0]", "chance 25.00%", "found first", "listed", "word", "token", "sky", "dog", "cell", "plain", "Cost", "point", "lost")

    def test_says_the_values_under_the_pointer(self):
        with tempfile.TemporaryDirectory() as folder, browser.Browser() as chromium:
            chromium.open(self.write(folder, EVALUATION))
            for canvas, place, expected in ((0, -0.25, "row 1, column 1: 0.00"), (0, 0.25, "row 1, column 2: 1.00"), (1, 0, "sky")):
                width = chromium.wait("""(canvas => canvas?.valueAt && (document.querySelectorAll('#at').forEach(each => each.removeAttribute('id')),
                    canvas.id = 'at', canvas.getBoundingClientRect().width))(document.querySelectorAll('figure canvas')[arguments[0]])""", canvas)
                chromium.hover("#at", place * width)
                self.assertEqual(chromium.run("return document.getElementById('at').closest('figure').querySelector('.readout').textContent"), expected)
            self.assertEqual(chromium.run("return document.querySelector('.columns .bar').title"), "cat: 25.00%")
            self.assertEqual(chromium.problems(), [])

    def test_shows_a_comparison(self):
        self.expect(COMPARISON, "<b>50.00%</b>", "Only a: x", "+10.0", "seed", "Loss term a", "knn.top1")

    def test_shows_the_samples_of_a_dry_run(self):
        self.expect(SAMPLES, "a caption", "2 tokens")


if __name__ == "__main__":
    unittest.main()
