"""A headless Chromium for tests of pages, driven through WebDriver (W3C), which chromedriver serves over HTTP."""
import base64
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
MISSING = "" if CHROMIUM and DRIVER else "Chromium is missing: apt-get install chromium chromium-driver"
KEYS = {"tab": "\ue004", "enter": "\ue007", "space": " ", "left": "\ue012", "up": "\ue013", "right": "\ue014", "down": "\ue015", "shift": "\ue008"}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the name that WebDriver gives to the id of an element


class Browser:
    """One window of Chromium. `with Browser() as browser: ...` ends it and its driver."""

    def __init__(self, width=1000, height=1200):
        self.folder = tempfile.TemporaryDirectory()
        self.driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        port = next(found for line in self.driver.stdout if (found := re.search(r"on port (\d+)\.$", line)))
        self.address = f"http://127.0.0.1:{port[1]}/session"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}",
                     f"--user-data-dir={self.folder.name}/profile"]
        options = {"goog:chromeOptions": {"binary": CHROMIUM, "args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
        self.address += "/" + self.call("", {"capabilities": {"alwaysMatch": options}})["sessionId"]
        self.call("/timeouts", {"script": 60000})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("", method="DELETE")
        finally:
            self.driver.terminate()
            self.driver.communicate()
            self.folder.cleanup()

    def call(self, path, body=None, method=None):
        """Sends a command, and returns its value. Raises RuntimeError with the driver's message."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def open(self, address):
        self.call("/url", {"url": address})

    def run(self, script, *arguments):
        """Runs the body of a function, with `arguments`, and returns what it returns. A promise is awaited."""
        return self.call("/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition, *arguments):
        """Waits until an expression is true in the page, and returns its value. An expression that throws is not true yet."""
        return self.run(f"""const end = Date.now() + 50000;
            return new Promise((done, failed) => {{
                const look = () => {{
                    let value = null;
                    try {{ value = {condition}; }} catch {{ }}
                    if (value) done(value);
                    else if (Date.now() > end) failed(new Error('not in 50 s; the page says: ' + document.body.innerText));
                    else setTimeout(look, 20);
                }};
                look();
            }});""", *arguments)

    def element(self, selector):
        return self.call("/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.call(f"/element/{self.element(selector)}/click", {})

    def type(self, selector, text):
        """Replaces the text of a field."""
        self.call(f"/element/{self.element(selector)}/clear", {})
        self.call(f"/element/{self.element(selector)}/value", {"text": text})

    def choose_file(self, selector, path):
        self.call(f"/element/{self.element(selector)}/value", {"text": str(path)})

    def hover(self, selector, x=0, y=0):
        """Moves the pointer to (x, y) pixels from the middle of an element, from elsewhere on the page."""
        moves = [{"type": "pointerMove", "origin": "viewport", "x": 1, "y": 1},
                 {"type": "pointerMove", "origin": {ELEMENT: self.element(selector)}, "x": round(x), "y": round(y)}]
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        self.call("/actions", {"actions": [{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": moves}]})

    def press(self, *keys):
        """Presses keys, one after another: names of KEYS, or texts. "shift+tab" holds the first key."""
        actions = []
        for key in keys:
            *held, last = key.split("+") if "+" in key and key != "+" else [key]
            held = [KEYS[name] for name in held]
            actions += [{"type": "keyDown", "value": value} for value in held]
            for value in [KEYS[last]] if last in KEYS else last:
                actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
            actions += [{"type": "keyUp", "value": value} for value in held]
        self.call("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def chrome(self, command, **parameters):
        """Sends a command of the Chrome DevTools protocol."""
        return self.call("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def use_theme(self, theme):
        self.chrome("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def resize(self, width, height):
        self.chrome("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def problems(self):
        """Returns the errors on the console since the last call: exceptions, refusals by the page's security policy, failed requests."""
        return [entry["message"] for entry in self.call("/se/log", {"type": "browser"}) if entry["level"] == "SEVERE"]

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("/screenshot")))
