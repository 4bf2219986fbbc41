"""A page in headless Chromium: what a person sees of it, and what the browser has to say."""

import contextlib
import shutil

import pytest

OPTIONS = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking --no-first-run".split()


@contextlib.contextmanager
def browser(width=1200, height=900, dark=False):
    """A selenium driver; the test is skipped where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver")
    binary, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("no Chromium, or no chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for option in [*OPTIONS, f"--window-size={width},{height}"]:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    b = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        b.set_page_load_timeout(120)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        b.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        b.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        yield b
    finally:
        b.quit()


def errors(b):
    return [e["message"] for e in b.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]


def requests(b):
    """Addresses that the page asked for, without itself and what it has in it."""
    import json

    events = (json.loads(e["message"])["message"] for e in b.get_log("performance"))
    sent = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith(("file:", "data:", "blob:"))]
