"""Uses the page of tessera-serve (configs/serve.html) in a headless Chromium. The models of most tests have weights that are set by hand:
their patches and words are colors, so each word's patches are known.

  python tests/serving/page_test.py build/bin

Skipped if there is no Chromium.
"""
import base64
import json
import pathlib
import re
import struct
import sys
import tempfile
import unittest

import server as helpers

sys.path.insert(0, str(helpers.ROOT / "tests/repository"))
import browser

PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
# Images are 96 x 64 pixels, of which the models see the middle, 64 x 64, in 8 x 8 patches: a red circle at the top left of it, and a blue square.
WIDTH, HEIGHT, LEFT = 96, 64, 16
CIRCLE = (20, 20, 16)  # x and y of the center and radius, in pixels of the part that the models see
SQUARE = (40, 40, 56, 56)  # its sides: 2 x 2 patches
RED, BLUE, GREEN, WHITE = (255, 0, 0), (0, 0, 255), (0, 255, 0), (255, 255, 255)
IN_CIRCLE = {8 * row + column for row in (1, 2, 3) for column in (1, 2, 3)}  # patches that are inside of the circle, or nearly
AROUND_CIRCLE = {8 * row + column for row in range(5) for column in range(5)}
IN_SQUARE = {8 * row + column for row in (5, 6) for column in (5, 6)}
# The channels of patches and words: red, green and blue against the other two, and white. The products of a color with the two other
# colors and with white are the same.
COLORS = {"red": [1, 0, 0, -1.5], "green": [0, 1, 0, -1.5], "blue": [0, 0, 1, -1.5], "shape": [0, 0, 0, -1], "other": [0, 0, 0, 0.01]}
PIECES = {"red": ("\u2581r", "ed"), "green": ("\u2581gr", "en"), "blue": ("\u2581b", "l", "u", "e"), "shape": ("\u2581circle", "\u2581square")}
FLAT = ("model.image.encoder.layers=0 model.image.encoder.width=8 model.image.encoder.final_norm=none model.text.encoder.layers=0 "
        "model.text.encoder.width=8 model.text.encoder.heads=1 model.text.encoder.final_norm=none model.image.projection.embed_dim=8 "
        "model.text.projection.embed_dim=8 model.preprocessing.mean=[0.5,0.5,0.5] model.preprocessing.std=[0.5,0.5,0.5]").split()


def png(circle=RED, square=BLUE):
    """Returns a PNG file with a circle and a square on white."""
    def color(x, y):
        if (x - CIRCLE[0]) ** 2 + (y - CIRCLE[1]) ** 2 < CIRCLE[2] ** 2:
            return circle
        return square if SQUARE[0] <= x < SQUARE[2] and SQUARE[1] <= y < SQUARE[3] else WHITE
    return helpers.png(WIDTH, HEIGHT, [bytes(value for x in range(WIDTH) for value in color(x - LEFT + 0.5, y + 0.5)) for y in range(HEIGHT)])


def train(folder, system, *overrides):
    """Trains a model a little, and returns its file."""
    return next(helpers.train(PROGRAMS, system, folder, "log.page=false", *overrides).glob("checkpoints/step_*/model.safetensors"))


def pieces_of(vocabulary):
    """Returns the ids of the pieces of a SentencePiece model: the texts in field 1 of the messages in field 1."""
    pieces, at = {}, 0
    while vocabulary[at:at + 1] == b"\x0a":
        length, text = vocabulary[at + 1], vocabulary[at + 3]
        pieces[vocabulary[at + 4:at + 4 + text].decode()] = len(pieces)
        at += 2 + length
    return pieces


def set_weights(source, target, swapped):
    """Writes a copy of a model file with the weights of COLORS; `swapped` exchanges the words red and blue."""
    data = source.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + length]), bytearray(data[8 + length:])
    ids = pieces_of(base64.b64decode(header["__metadata__"]["tessera.vocabulary"]))
    words = {name: COLORS["other"] for name in ids} | {piece: COLORS[name] for name, pieces in PIECES.items() for piece in pieces}
    if swapped:
        words |= {piece: COLORS[{"red": "blue", "blue": "red"}[name]] for name in ("red", "blue") for piece in PIECES[name]}
    channels = [[2 / 64, -1 / 64, -1 / 64], [-1 / 64, 2 / 64, -1 / 64], [-1 / 64, -1 / 64, 2 / 64], [1 / 192] * 3]
    identity = [float(row == column) for row in range(8) for column in range(8)]
    weights = {"visual.conv1.weight": [value for row in channels for value in row for _ in range(64)] + [0.0] * (4 * 3 * 64),
               "visual.adaptor.weight": identity, "adaptor.weight": identity, "visual.adaptor.bias": [0.0] * 8, "adaptor.bias": [0.0] * 8,
               "positional_embedding": [0.0] * (40 * 8),
               "token_embedding.weight": [value for name in sorted(ids, key=ids.get) for value in [*words[name], 0, 0, 0, 0]]}
    for name, values in weights.items():
        begin, end = header[name]["data_offsets"]
        body[begin:end] = struct.pack(f"<{(end - begin) // 4}f", *values)
    target.write_bytes(data[:8 + length] + body)


@unittest.skipUnless(not browser.MISSING, browser.MISSING)
class ServePage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        place = cls.place = pathlib.Path(cls.folder.name)
        plain = train(place / "sparc", "sparc", *FLAT)
        set_weights(plain, place / "colors.safetensors", swapped=False)
        set_weights(plain, place / "swapped.safetensors", swapped=True)
        others = {system: train(place / system, system, "model.image.encoder.layers=1") for system in ("sparo", "stair_single", "flair", "dino", "naflex")}
        (place / "images").mkdir()
        for name, colors in (("red_blue", (RED, BLUE)), ("green_blue", (GREEN, BLUE)), ("blue_red", (BLUE, RED))):
            (place / f"images/{name}.png").write_bytes(png(*colors))
        (place / "token").write_text("secret")
        models = [f"--checkpoint={name}={place / name}.safetensors" for name in ("colors", "swapped")]
        models += [f"--checkpoint={name}={path}" for name, path in others.items()]
        cls.server = cls.enterClassContext(helpers.Server(PROGRAMS, *models, "--images", place / "images", "--quiet"))
        cls.browser = cls.enterClassContext(browser.Browser())

    def setUp(self):
        self.browser.use_theme("light")
        self.browser.resize(1000, 1200)
        self.open(self.server)

    def open(self, server, fragment=""):
        self.browser.open("about:blank")
        self.browser.open(server.url + "/" + fragment)

    def drop(self, data, name="image.png", kind="image/png"):
        """Drops a file on the page."""
        self.browser.wait("document.querySelector('.panel')")
        self.browser.run("""const list = new DataTransfer(), [data, name, type] = arguments;
            list.items.add(new File([Uint8Array.from(atob(data), each => each.charCodeAt(0))], name, {type}));
            document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: list, bubbles: true, cancelable: true}));""",
                         base64.b64encode(data).decode(), name, kind)

    def drop_image(self):
        self.drop(png())
        self.browser.wait("document.querySelector('.stage img')?.naturalWidth == 96")

    def show_words(self, text="a red circle, blue"):
        self.browser.type("#text", text)
        self.browser.press("enter")
        self.browser.wait("document.querySelectorAll('.sentence').length == document.querySelectorAll('.panel').length")

    def cells(self, panel=0):
        """Returns red, green, blue and opacity of each patch of the map; None if no map is shown."""
        return self.browser.run("""const canvas = document.querySelectorAll('.stage canvas')[arguments[0]];
            if (canvas.hidden) return null;
            const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            return Array.from({length: data.length / 4}, (_, i) => [...data.slice(4 * i, 4 * i + 4)]);""", panel)

    def lit(self, panel=0):
        """Returns the patches that a map covers by at least half of the greatest opacity, and all that it covers at all."""
        cells = self.cells(panel)
        return None if cells is None else ({i for i, cell in enumerate(cells) if cell[3] > 115}, {i for i, cell in enumerate(cells) if cell[3] > 12})

    def expect_lit(self, inside, around, panel=0):
        strong, any_light = self.lit(panel)
        self.assertLessEqual(inside, strong)
        self.assertLessEqual(any_light, around)

    def word(self, name, panel=0):
        """Marks the button of a word with an id, and returns its selector."""
        self.browser.run("""const [name, panel] = arguments;
            document.getElementById('wanted')?.removeAttribute('id');
            [...document.querySelectorAll('.panel')[panel].querySelectorAll('button')].find(each => each.textContent.startsWith(name)).id = 'wanted';""", name, panel)
        return "#wanted"

    def text(self, selector):
        return self.browser.run("return [...document.querySelectorAll(arguments[0])].map(each => each.innerText)", selector)

    def tearDown(self):
        self.assertEqual([each for each in self.browser.problems() if "Failed to load resource" not in each], [])

    def test_lights_up_the_patches_of_a_word_under_the_pointer(self):
        self.drop_image()
        self.show_words()
        self.assertEqual(self.text(".sentence"), ["a red circle, blue"])
        self.assertIsNone(self.lit())
        self.browser.hover(self.word("red"))
        self.expect_lit(IN_CIRCLE, AROUND_CIRCLE)
        self.assertRegex(self.text(".panel")[0], "\u201cred\u201d is strongest in row [2-4], column [2-4]")
        self.assertIn("The weights with which sparc", self.text(".panel")[0])
        self.browser.hover(self.word("blue"))
        self.expect_lit(IN_SQUARE, IN_SQUARE)
        self.browser.hover(self.word("circle"))
        self.expect_lit(IN_CIRCLE | IN_SQUARE, AROUND_CIRCLE | IN_SQUARE)
        self.browser.hover("h1")
        self.assertIsNone(self.lit())
        # The map covers the middle of the image, which is what the model sees.
        box = self.browser.run("""const [image, canvas] = ['img', 'canvas'].map(name => document.querySelector('.stage ' + name)), show = button => button.focus();
            show(document.querySelector('.sentence button'));
            const whole = image.getBoundingClientRect(), part = canvas.getBoundingClientRect();
            return [part.left - whole.left, part.width, part.height].map((value, i) => value / [whole.width, whole.width, whole.height][i])""")
        for value, expected in zip(box, (LEFT / WIDTH, 64 / WIDTH, 1)):
            self.assertAlmostEqual(value, expected, 2)

    def test_says_the_value_under_the_pointer_and_keeps_a_pressed_word(self):
        self.drop_image()
        self.show_words()
        self.browser.click(self.word("red"))
        self.browser.hover("h1")
        self.expect_lit(IN_CIRCLE, AROUND_CIRCLE)
        patch = self.browser.run("return document.querySelector('.stage canvas').getBoundingClientRect().width / 8")
        self.browser.hover(".stage canvas", -1.5 * patch, -1.5 * patch)
        inside = re.fullmatch(r"Row 3, column 3\. red: (0\.\d+)", self.text(".readout")[0])
        self.assertGreater(float(inside[1]), 0.05)
        self.browser.hover(".stage canvas", 3.5 * patch, -3.5 * patch)
        self.assertEqual(self.text(".readout"), ["Row 1, column 8. red: 0"])
        self.browser.click(self.word("red"))
        self.browser.run("document.activeElement.blur()")
        self.browser.hover("h1")
        self.assertIsNone(self.lit())

    def test_works_with_the_keyboard_alone(self):
        (self.place / "file.png").write_bytes(png())
        self.browser.wait("document.querySelector('.panel')")
        self.browser.choose_file("#file", self.place / "file.png")
        self.browser.wait("document.querySelector('.stage img')")

        def tab_to(condition, most=30):
            for _ in range(most):
                self.browser.press("tab")
                if self.browser.run(f"const at = document.activeElement; return {condition}"):
                    return
            self.fail("the Tab key does not lead to " + condition)
        self.browser.run("document.activeElement.blur()")
        tab_to("at.id == 'text'")
        self.browser.press("a red circle", "enter")
        self.browser.wait("document.querySelector('.sentence')")
        tab_to("at.textContent == 'red'")
        self.expect_lit(IN_CIRCLE, AROUND_CIRCLE)
        self.browser.press("space")
        self.assertEqual(self.browser.run("return document.activeElement.getAttribute('aria-pressed')"), "true")
        self.browser.press("shift+tab", "shift+tab")  # by the word before to the map, whose patches the arrow keys read
        self.assertEqual(self.browser.run("return document.activeElement.className"), "stage")
        self.expect_lit(IN_CIRCLE, AROUND_CIRCLE)
        self.browser.press("right", "right", "down", "left")
        self.assertRegex(self.text(".readout")[0], r"^Row 2, column 1\. red: ")

    def test_draws_bars_and_a_segmentation(self):
        self.drop_image()
        self.browser.type("#classes", "blue square, red circle, green")
        self.browser.click("#segmentation")
        self.browser.press("tab")
        self.browser.click("#classes")
        self.browser.press("enter")
        self.browser.wait("document.querySelector('.lights')")
        bars = self.text(".bars li")
        self.assertRegex(bars[0], r"(?s)^red circle, similarity -?0\.\d+.*%$")
        self.assertRegex(bars[2], "^green")
        self.assertAlmostEqual(sum(float(re.search(r"([\d.]+)%", bar)[1]) for bar in bars), 100, delta=0.2)
        cells = self.cells()
        self.assertEqual({tuple(cells[i][:2]) for i in IN_CIRCLE}, {tuple(cells[18][:2])})
        self.assertNotEqual(cells[18], cells[45])
        self.assertTrue(all(cell[3] > 100 for cell in cells))
        self.browser.hover(self.word("blue square"))
        self.assertEqual(self.lit()[0] & (IN_CIRCLE | IN_SQUARE), IN_SQUARE)  # white is like no class, and gets one of them
        patch = self.browser.run("return document.querySelector('.stage canvas').getBoundingClientRect().width / 8")
        self.browser.hover(".stage canvas", 1.5 * patch, 1.5 * patch)
        self.assertEqual(self.text(".readout"), ["Row 6, column 6. blue square"])

    def test_searches_by_text_and_by_the_image(self):
        self.browser.wait("document.querySelector('.panel')")
        self.browser.type("#query", "green")
        self.browser.press("enter")
        self.browser.wait("document.querySelectorAll('.hits img').length == 3 && [...document.querySelectorAll('.hits img')].every(each => each.naturalWidth)")
        self.assertIn("green_blue.png", self.text(".hits li")[0])
        self.browser.click(".hits button")
        self.browser.wait("document.querySelector('.stage img')?.alt.endsWith('green_blue.png')")
        self.drop_image()
        self.browser.run("[...document.querySelectorAll('button')].find(each => each.textContent == 'By the image').click()")
        self.browser.wait("document.querySelector('.panel').innerText.includes('Nearest to image.png')")
        self.assertRegex(self.text(".hits li")[0], r"red_blue\.png\s+1$")

    def test_compares_two_models(self):
        self.drop_image()
        self.browser.run("const other = document.getElementById('other'); other.value = 'swapped'; other.dispatchEvent(new Event('change'))")
        self.browser.wait("document.querySelectorAll('.stage img').length == 2")
        self.assertEqual(self.text(".panel h2"), ["colors", "swapped"])
        self.show_words()
        for panel in (0, 1):  # the word of one model shows the maps of both
            self.browser.hover("h1")
            self.assertIsNone(self.lit(0) or self.lit(1))
            self.browser.hover(self.word("red", panel))
            self.expect_lit(IN_CIRCLE, AROUND_CIRCLE, 0)
            self.expect_lit(IN_SQUARE, IN_SQUARE, 1)
        left, right = self.browser.run("return [...document.querySelectorAll('.panel')].map(each => each.getBoundingClientRect().left)")
        self.assertGreater(right, left + 300)

    def test_asks_for_the_token(self):
        with helpers.Server(PROGRAMS, "--checkpoint", f"colors={self.place}/colors.safetensors", "--images", self.place / "images", "--token-file",
                            self.place / "token", "--quiet") as server:
            self.open(server)
            self.browser.wait("document.activeElement.id == 'token'")
            self.browser.press("wrong", "enter")
            self.browser.wait("document.body.innerText.includes('does not accept this token')")
            self.browser.wait("document.activeElement.id == 'token' && !document.activeElement.value")
            self.browser.press("secret", "enter")
            self.browser.wait("document.querySelector('.panel')")
            self.assertEqual(self.browser.run("return sessionStorage.getItem('tessera-token')"), "secret")
            self.browser.type("#query", "red")
            self.browser.press("enter")
            self.browser.wait("document.querySelectorAll('.hits img').length == 3 && [...document.querySelectorAll('.hits img')].every(each => each.naturalWidth)")
            self.assertIn("start it with --checkpoint twice", self.text("#other-reason")[0])
        self.browser.click(".hits button")
        self.browser.wait("document.querySelector('.errors').innerText.includes('The server does not answer')")

    def choose(self, model):
        self.browser.run("const list = document.getElementById('model'); list.value = arguments[0]; list.dispatchEvent(new Event('change'))", model)
        self.browser.wait("document.querySelector('.panel h2').textContent == arguments[0]", model)

    def test_draws_the_map_of_an_image_that_keeps_its_shape(self):
        self.drop_image()
        self.choose("naflex")
        self.browser.click("#segmentation")
        self.browser.type("#classes", "red, blue")
        self.browser.press("enter")
        self.browser.wait("document.querySelector('.lights')")
        self.assertEqual(len(self.cells()), 9 * 6)
        self.assertEqual(self.browser.run("""const [image, map] = ['img', 'canvas'].map(name => document.querySelector('.stage ' + name).getBoundingClientRect());
            return [map.left - image.left, map.width / image.width, map.height / image.height]"""), [0, 1, 1])

    def test_shows_slots_tokens_and_what_a_model_lacks(self):
        self.drop_image()
        self.show_words()
        self.choose("sparo")  # asks the new model the same question
        self.browser.hover((self.browser.wait("document.querySelector('.lights button')"), ".lights button")[1])
        self.assertRegex(self.text(".panel")[0], r"(?s)\u201cslot (\d+)\u201d.*The tokens of slot \1 in the text")
        self.choose("stair_single")
        self.browser.wait("document.querySelectorAll('.pair .bars').length == 2 && document.querySelector('.sentence')")
        self.choose("flair")
        self.browser.wait("document.querySelector('.sentence')")
        self.assertFalse(self.browser.run("return document.getElementById('rerank').disabled || document.getElementById('pooled').disabled"))
        self.browser.click("#rerank")
        self.browser.type("#query", "red")
        self.browser.press("enter")
        self.browser.wait("document.querySelectorAll('.hits li').length == 3")
        self.choose("dino")
        self.assertTrue(self.browser.run("return document.getElementById('text').matches(':disabled') && document.getElementById('classes').matches(':disabled')"))
        self.assertIn("dino has no text tower", self.text("form")[0])

    def test_reports_mistakes(self):
        self.drop(b"no image", "notes.txt", "text/plain")
        self.browser.wait("document.querySelector('[role=alert]').innerText == 'notes.txt is no image that this browser can show.'")
        self.browser.type("#text", "red")
        self.browser.press("enter")
        self.browser.wait("document.querySelector('[role=alert]').innerText == 'Choose an image first.'")
        self.browser.run("""const list = new DataTransfer();
            list.items.add(new File([Uint8Array.from(atob(arguments[0]), each => each.charCodeAt(0))], 'pasted.png', {type: 'image/png'}));
            document.body.dispatchEvent(new ClipboardEvent('paste', {clipboardData: list, bubbles: true, cancelable: true}));""", base64.b64encode(png()).decode())
        self.browser.wait("document.querySelector('.stage img')?.alt == 'pasted.png'")
        self.browser.type("#classes", "red")
        self.browser.type("#prompt", "no place for the class")
        self.browser.press("enter")
        self.browser.wait("document.querySelector('[role=alert]').innerText.startsWith('templates')")

    def test_is_readable_in_the_dark_and_on_a_phone_and_has_a_name_for_everything(self):
        self.open(self.server, "#image=0&text=a red circle&word=2&classes=red circle,blue square&segmentation&query=red&other=swapped")
        self.browser.wait("document.querySelectorAll('[aria-pressed=true]').length == 2 && document.querySelectorAll('.hits img').length == 6")
        for theme, width in (("light", 390), ("dark", 390), ("dark", 1000)):
            self.browser.use_theme(theme)
            self.browser.resize(width, 1200)
            self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), width)
            self.assertEqual(self.browser.run("""const channels = color => color.match(/[\\d.]+/g).map(Number);
                const light = color => channels(color).slice(0, 3).map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
                    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
                const ground = at => { while (at && (channels(getComputedStyle(at).backgroundColor)[3] ?? 1) == 0) at = at.parentElement; return at ? getComputedStyle(at).backgroundColor : 'rgb(255,255,255)'; };
                return [...document.querySelectorAll('main *')].filter(each => [...each.childNodes].some(node => node.nodeType == 3 && node.data.trim()) && each.checkVisibility() && !each.matches(':disabled *, .skip'))
                    .map(each => { const [a, b] = [light(getComputedStyle(each).color), light(ground(each))].sort((x, y) => y - x); return [each.outerHTML.slice(0, 80), (a + 0.05) / (b + 0.05)]; })
                    .filter(([, contrast]) => contrast < 4.5)"""), [], "WCAG AA: a contrast of at least 4.5")
        self.assertEqual(self.browser.run("return getComputedStyle(document.body).backgroundColor"), "rgb(21, 23, 26)")
        nodes = self.browser.chrome("Accessibility.getFullAXTree")["nodes"]
        named = {"button", "textbox", "checkbox", "combobox", "spinbutton", "link", "application", "image", "region"}
        found = [(node["role"]["value"], node["name"]["value"]) for node in nodes if not node["ignored"] and node["role"]["value"] in named]
        self.assertEqual([each for each in found if not each[1]], [])
        self.assertLessEqual({"button", "textbox", "checkbox", "combobox", "spinbutton", "application", "region"}, {role for role, _ in found})


if __name__ == "__main__":
    unittest.main()
