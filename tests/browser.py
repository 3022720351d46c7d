"""A headless Chromium, driven as a hand would: chromedriver's WebDriver protocol over the standard library."""

import json
import re
import shutil
import subprocess
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's key for an element
KEYS = {"Tab": "\ue004", "Escape": "\ue00c", "Left": "\ue012", "Up": "\ue013", "Right": "\ue014", "Down": "\ue015"}
KEYS |= {"Home": "\ue011", "End": "\ue010"}


def missing() -> str | None:
    """The programs that are missing for a browser, or None."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    absent = [
        name for name, path in (("chromium", chromium), ("chromedriver", shutil.which("chromedriver"))) if not path
    ]
    return f"no {' and no '.join(absent)} on the PATH" if absent else None


class Browser:
    """One window of 1,000 by 900 pixels. A context manager."""

    def __enter__(self) -> "Browser":
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        try:
            told = (re.search(r"started successfully on port (\d+)", line) for line in self.driver.stdout)
            self.session = f"http://127.0.0.1:{next(filter(None, told))[1]}/session"
            switches = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1000,900"]
            options = {"alwaysMatch": {"goog:chromeOptions": {"args": switches}}}
            self.session += f"/{self.post('', capabilities=options)['sessionId']}"
        except BaseException:
            self.driver.kill()
            self.driver.communicate()
            raise
        return self

    def __exit__(self, *error) -> None:
        try:
            self._ask("DELETE", "", None)
        finally:
            self.driver.kill()
            self.driver.communicate()

    def post(self, path: str, **body):
        return self._ask("POST", path, body)

    def run(self, script: str, *arguments):
        """Returns the result of a script, run as by a person at the console, whatever the page's policy."""
        return self.post("/execute/sync", script=script, args=list(arguments))

    def find(self, selector: str):
        return self.post("/element", using="css selector", value=selector)

    def point(self, selector: str) -> None:
        """Moves the mouse to the middle of an element."""
        move = {"type": "pointerMove", "duration": 0, "origin": self.find(selector), "x": 0, "y": 0}
        self.post("/actions", actions=[{"type": "pointer", "id": "mouse", "actions": [move]}])

    def press(self, *names: str) -> None:
        strokes = [{"type": kind, "value": KEYS[n]} for n in names for kind in ("keyDown", "keyUp")]
        self.post("/actions", actions=[{"type": "key", "id": "keys", "actions": strokes}])

    def set_media(self, **features: str) -> None:
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.post("/goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"features": features})

    def _ask(self, method: str, path: str, body):
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.session + path, content, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
