"""The pages as a person has them: in a browser, wide and narrow, light and dark.  Skipped where there is none."""

import json

import pytest

from browser import browser, errors, requests
from pages import BREAKING, ROOT, written

pytest.importorskip("jinja2")

DENSENET = """
import torch, magneto
import bench.workloads, torchvision

f = magneto.compile(torchvision.models.densenet121(weights=None).eval())
with torch.no_grad():
    for _ in range(4):
        f(torch.randn(1, 3, 64, 64))
"""
PROGRAM = f"""{BREAKING}
for n in (8, 8, 9, 9):
    g(torch.ones(n, 16, requires_grad=True)).sum().backward()
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser():
        pass  # without one nothing is made
    return written(tmp_path_factory.mktemp("report"), PROGRAM)


def dashboard(_):
    return ROOT / "docs" / "dashboard" / "index.html"


def wide(b):
    """How many pixels the page is wider than the window."""
    return b.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


@pytest.mark.parametrize("width", [360, 768, 1400])
@pytest.mark.parametrize("of", [lambda page: page, dashboard], ids=["report", "dashboard"])
def test_no_error_no_request_and_no_scrolling_sideways(page, of, width):
    with browser(width) as b:
        b.get(of(page).as_uri())
        b.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
        b.execute_async_script("setTimeout(arguments[0], 300)")
        assert errors(b) == [] == requests(b)
        assert wide(b) <= 0


def test_every_link_lands_below_the_head(page):
    """What it leads to is opened, and is seen."""
    with browser() as b:
        b.get(page.as_uri())
        bad = b.execute_async_script(
            """
            const done = arguments[0], bad = [], head = document.querySelector("header");
            const all = [...new Set([...document.querySelectorAll('a[href^="#"]')].map((a) => a.getAttribute("href")))];
            (async () => {
              for (const href of all) {
                location.hash = href;
                await new Promise((go) => setTimeout(go, 30));
                const at = document.getElementById(decodeURIComponent(href.slice(1)));
                const box = at && at.getBoundingClientRect();
                const below = head.getBoundingClientRect().bottom - 1;
                if (!box || !box.height || box.top < below - 8 || box.top > innerHeight) bad.push([href, box && box.top]);
              }
              done([all.length, bad]);
            })();
            """
        )
        assert bad[0] > 40 and bad[1] == []


def test_search_shows_only_what_has_the_words(page):
    with browser() as b:
        b.get(page.as_uri())
        shown = "return [...document.querySelectorAll('[data-row]:not(.hidden)')].map((r) => r.textContent.toLowerCase())"
        before = len(b.execute_script(shown))
        box = b.find_element("id", "search")
        box.send_keys("print builtins")
        rows = b.execute_script(shown)
        assert 0 < len(rows) < before and all("print" in r and "builtins" in r for r in rows)
        assert b.find_element("id", "found").text == f"{len(rows)} found"
        box.send_keys("zzz")
        assert b.execute_script(shown) == []
        box.send_keys("\ue00c")  # Escape
        assert len(b.execute_script(shown)) == before


@pytest.mark.parametrize("of", [lambda page: page, dashboard], ids=["report", "dashboard"])
@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast_in_both_themes(page, of, dark):
    """Every text that is seen against what lies behind it: 4.5 to 1, as WCAG AA asks."""
    with browser(dark=dark) as b:
        b.get(of(page).as_uri())
        found = b.execute_script(
            """
            const number = (c) => c.match(/[\\d.]+/g).map(Number);
            const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
              return .2126 * r + .7152 * g + .0722 * b; };
            const behind = (e) => { for (; e; e = e.parentElement) { const c = number(getComputedStyle(e).backgroundColor);
              if (c.length < 4 || c[3] > .5) return c.slice(0, 3); } return [255, 255, 255]; };
            const bad = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            let n = 0;
            while (walk.nextNode()) {
              const e = walk.currentNode.parentElement;
              if (!walk.currentNode.data.trim() || !e.offsetParent || e.closest("svg, script, style")) continue;
              const a = light(number(getComputedStyle(e).color).slice(0, 3)), z = light(behind(e));
              n++;
              if ((Math.max(a, z) + .05) / (Math.min(a, z) + .05) < 4.5) bad.add(e.tagName + "." + e.className);
            }
            return [n, [...bad], light(behind(document.body))];
            """
        )
        assert found[0] > 50 and found[1] == []
        assert (found[2] < 0.1) == dark


def test_the_page_of_a_large_model_opens_fast_and_is_small(tmp_path):
    """0.5 s were measured for densenet121 on a busy machine."""
    pytest.importorskip("torchvision")
    with browser() as b:
        page = written(tmp_path, DENSENET)
        assert page.stat().st_size < 5e6
        b.get(page.as_uri())
        times = [ready(b, page) for _ in range(3)]
        assert min(times) < 1500, times
        facts = json.loads(b.execute_script("return document.getElementById('facts').textContent"))
        assert all(s["places"] for p in facts["plans"] for s in p["steps"])


def ready(b, page):
    """Milliseconds until the page is laid out."""
    b.get(page.as_uri())
    return b.execute_script("return performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
