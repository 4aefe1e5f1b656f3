"""The page that shows traces, in headless Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.page import write_page
from tests.support.received import ATTACK, HOSTILE, ORDERS, span_id

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("chromium is not on the PATH", allow_module_level=True)

Page = Any
PHONE = 360


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    # Chromium's sandbox refuses to run as root, as tests in containers do.
    options = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield made
        made.close()


@pytest.fixture
def shown(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Show spans; afterwards nothing may have been fetched, logged or asked."""
    surprises: list[str] = []
    contexts = []

    def show(spans: Any = ORDERS, width: int = 1100, scheme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        made = context.new_page()
        path = write_page(spans, tmp_path / "page.html")
        for event in ("console", "pageerror", "dialog", "requestfailed"):
            made.on(event, lambda what: surprises.append(str(what)))
        made.on("request", lambda request: surprises.append(request.url))
        made.goto(path.as_uri())
        surprises.remove(path.as_uri())
        return made

    yield show
    for context in contexts:
        context.close()
    assert surprises == []


def focused(page: Page) -> str:
    """Return the id of the span whose row has the focus."""
    return str(page.evaluate("document.activeElement.parentElement.id"))


def test_hostile_text_is_shown_and_does_nothing(shown: Callable[..., Page]) -> None:
    """Not in names, not in attributes, not in messages."""
    page = shown(ATTACK)
    page.locator("summary").click()
    assert page.locator("summary b").inner_text() == HOSTILE
    assert HOSTILE in page.locator("dl").inner_text()
    assert page.evaluate("window.owned") is None
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("width", [PHONE, 1100])
@pytest.mark.parametrize("spans", [ORDERS, ATTACK], ids=["orders", "attack"])
def test_nothing_is_cut_off(shown: Callable[..., Page], width: int, spans: Any) -> None:
    """The page is as wide as the screen, with every span open, on a phone too."""
    page = shown(spans, width)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for box in page.locator("summary b, .bar, .long, .fault, dd").all():
        place = box.bounding_box()
        assert place["x"] >= 0
        assert place["x"] + place["width"] <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(shown: Callable[..., Page], scheme: str) -> None:
    """Contrast is at least 4.5 to 1 wherever there is text, in both colour schemes."""
    page = shown(scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate(_LUMINANCE_OF_THE_PAPER) == pytest.approx(
        1 if scheme == "light" else 0, abs=0.1
    )
    poor = page.evaluate(_POOR_CONTRASTS)
    assert poor == []


def test_the_keyboard_is_enough(shown: Callable[..., Page]) -> None:
    """Tab and arrows move, Enter and arrows open, and a link leads to the span it names."""
    page = shown()
    for key, number in [("Tab", 1), ("ArrowDown", 2), ("End", 4), ("Home", 1), ("ArrowDown", 2)]:
        page.keyboard.press(key)
        assert focused(page) == f"span-{span_id(number)}"
    facts = page.locator(f"#span-{span_id(2)} dl")
    for key, visible in [("Enter", True), ("ArrowLeft", False), ("ArrowRight", True)]:
        page.keyboard.press(key)
        assert facts.is_visible() is visible
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "shop: publish orders"
    page.keyboard.press("Enter")
    assert focused(page) == f"span-{span_id(1)}"
    assert page.locator(f"#span-{span_id(1)} dl").is_visible()


def test_links_are_drawn_from_bar_to_bar(shown: Callable[..., Page]) -> None:
    """One line per link, and they follow when a row opens."""
    page = shown()
    assert page.locator(".links path").count() == 3
    for _ in range(2):
        page.wait_for_function(_LINE_ENDS_AT_BAR, arg=f"span-{span_id(4)}")
        page.locator(f"#span-{span_id(1)} summary").click()


def test_attempts_stand_together_and_errors_are_visible(shown: Callable[..., Page]) -> None:
    """Without opening anything."""
    page = shown()
    group = page.get_by_role("group", name="2 attempts at one message, in the end dead_lettered")
    assert group.locator(".failed").count() == 2
    rows = page.locator("summary").filter(has_text="ERROR the total is negative")
    assert [row.locator(".fault").is_visible() for row in rows.all()] == [True, True]
    assert page.get_by_text("2 errors").is_visible()


def test_services_have_colours_of_their_own(shown: Callable[..., Page]) -> None:
    """The bars say which service it was, and so does the legend."""
    page = shown()
    colour = "element => getComputedStyle(element).backgroundColor"
    bars = {page.locator(f"#span-{span_id(n)} .bar").evaluate(colour) for n in (1, 2, 3)}
    legend = {each.evaluate(colour) for each in page.locator(".legend .dot").all()}
    assert len(bars) == 2
    assert bars == legend


_COLOURS = """
const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
const luminance = (text) => rgb(text).slice(0, 3).map((part) => part / 255)
  .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
  .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
const paper = (element) => {
  const colour = getComputedStyle(element).backgroundColor;
  return (rgb(colour)[3] ?? 1) > 0 ? colour : paper(element.parentElement);
};
"""
_LUMINANCE_OF_THE_PAPER = f"() => {{ {_COLOURS} return luminance(paper(document.body)); }}"
_POOR_CONTRASTS = f"""() => {{ {_COLOURS}
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const poor = [];
  while (texts.nextNode()) {{
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.tagName === "SCRIPT") continue;
    const pair = [luminance(getComputedStyle(element).color), luminance(paper(element))];
    const contrast = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (contrast < 4.5) poor.push(`${{texts.currentNode.data}}: ${{contrast}}`);
  }}
  return poor;
}}"""
_LINE_ENDS_AT_BAR = """(id) => {
  const bar = document.querySelector(`#${id} .bar`).getBoundingClientRect();
  return [...document.querySelectorAll(".links circle")].some((end) => {
    const box = end.getBoundingClientRect();
    const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    return Math.abs(x - bar.left) < 2 && Math.abs(y - (bar.top + bar.bottom) / 2) < 2;
  });
}"""
