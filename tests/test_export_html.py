"""Exported pages in a real browser: they load nothing, run nothing, and can be read by anybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hostile import EVIL, MARK, record_hostile
from playwright.sync_api import Browser, Page, sync_playwright
from reading import LEAP, project, record
from recording import RUN, event, step
from reporting import command_run, report_of

from repotrace.records.command import Output
from repotrace.runs.export.exporting import export_report, export_run
from repotrace.runs.export.selection import ExportOptions
from repotrace.storage import Store

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    *("--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


def written(store: Store, folder: Path, **options: Any) -> Path:
    file = folder / "run.html"
    file.write_bytes(export_run(store, store.runs.get(RUN), "html", ExportOptions(**options)))
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip("needs a browser at /usr/bin/chromium")
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


class Watched:
    """A page, and what it tried."""

    def __init__(self, browser: Browser, file: Path, **context: Any) -> None:
        self.page: Page = browser.new_page(**context)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri(), wait_until="load")

    def unfold(self) -> None:
        self.page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")


@pytest.fixture
def recorded(tmp_path: Path) -> Store:
    return record(project(tmp_path / "invoice")).store


# --- Without a browser ----------------------------------------------------------------------


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def test_the_page_has_no_element_that_could_act(store: Store, tmp_path: Path) -> None:
    record_hostile(store)
    text = written(store, tmp_path).read_text()
    found = Tags(text)
    assert not found.tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form"}
    assert not [name for name in found.attributes if name.startswith("on") or name == "style"]
    assert all(re.fullmatch(r"#step(s|-\d+)", link) for link in found.links)
    assert text.count(MARK) > 30
    assert "script-src 'none'" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_options_leave_things_out(recorded: Store, tmp_path: Path) -> None:
    whole = written(recorded, tmp_path).read_text()
    assert "Look at the export." in whole
    assert "return" in whole
    assert "Look at the export." not in written(recorded, tmp_path, llm=False).read_text()
    assert 'class="diff"' not in written(recorded, tmp_path, files=False).read_text()
    part = written(recorded, tmp_path, from_step=3, to_step=4).read_text()
    assert re.findall(r'id="step-(\d+)"', part) == ["3", "4"]


def test_secrets_in_files_are_masked(store: Store, tmp_path: Path) -> None:
    token = "ghp_" + "A1b2C3d4E5f6G7h8I9j0" + "K1l2M3n4O5p6Q7r8"
    (kept,) = store.snapshots.keep(f"runs/{RUN}", f"token = '{token}'\n".encode())
    change = event("file_operation", 1, run=RUN, step_id="s", operation_type="create",
                   file_path="a.py", after_id=kept)  # fmt: skip
    store.runs.add_events([*step("s", 1, 2), change])
    assert token not in written(store, tmp_path).read_text()
    assert token in written(store, tmp_path, allow_secrets=True).read_text()


def test_a_long_text_is_cut(store: Store, tmp_path: Path) -> None:
    store.runs.add_events([*step("s", 1, 2, output_result="x" * 3_000_000)])
    text = written(store, tmp_path).read_text()
    assert len(text) < 200_000
    assert "bytes are left out" in text


def test_every_step_is_there_however_many(store: Store, tmp_path: Path) -> None:
    store.runs.add_events([e for n in range(1_200) for e in step(f"s{n}", n, n + 0.5)])
    text = written(store, tmp_path).read_text()
    assert len(re.findall(r'<details class="step', text)) == 1_200


# --- In a browser ---------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_content_stays_text(
    browser: Browser, store: Store, tmp_path: Path, scheme: str
) -> None:
    record_hostile(store)
    file = written(store, tmp_path)
    shown = Watched(browser, file, color_scheme=scheme)
    shown.unfold()
    page = shown.page
    assert page.title().startswith(MARK)
    assert page.title() != "owned"
    assert (shown.said, shown.asked) == ([], [file.as_uri()])
    assert page.locator("script, img, iframe, form, base, .message a").count() == 0
    # Read as it was written, and not hidden by a style that it brings.
    assert "<script>document.title='owned'</script>" in page.inner_text("h1")
    assert page.locator(".step").count() == 3
    assert page.locator(".step").first.is_visible()
    assert page.locator("footer").is_visible()
    page.close()


def test_a_style_or_script_that_got_in_would_not_act(
    browser: Browser, store: Store, tmp_path: Path
) -> None:
    record_hostile(store)
    file = written(store, tmp_path)
    injected = "<style>h1{display:none}</style><script>document.title='owned'</script>"
    file.write_text(file.read_text().replace("<header>", f"{injected}<header>"))
    shown = Watched(browser, file)
    assert shown.page.title().startswith(MARK)
    assert shown.page.locator("h1").is_visible()
    assert len(shown.said) == 2
    shown.page.close()


def test_it_is_read_with_the_keyboard(browser: Browser, recorded: Store, tmp_path: Path) -> None:
    page = Watched(browser, written(recorded, tmp_path)).page
    assert page.locator("#step-4").get_attribute("open") is not None
    assert page.locator("#step-3").get_attribute("open") is None
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#step-3 > summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#step-3 .diff tr.add").inner_text().split() == [
        *("2", "+", "return", "year", "+", "2"),
    ]
    page.locator("#only-all").focus()
    page.keyboard.press("ArrowRight")
    shown = page.locator(".step").evaluate_all(
        "all => all.filter(s => s.checkVisibility()).map(s => s.id)"
    )
    assert shown == ["step-4"]
    page.close()


def test_links_lead_to_the_steps(browser: Browser, recorded: Store, tmp_path: Path) -> None:
    page = Watched(browser, written(recorded, tmp_path)).page
    page.get_by_role("link", name="step 6").first.click()
    assert page.url.endswith("#step-6")
    targets = page.evaluate(
        "[...document.querySelectorAll('a[href]')].filter(a =>"
        " !document.getElementById(a.getAttribute('href').slice(1))).length"
    )
    assert targets == 0
    assert page.locator(f"table.grid th:has-text('{LEAP}') ~ td").all_inner_texts() == ["✗", "✓"]
    page.close()


def test_it_fits_the_window(browser: Browser, store: Store, tmp_path: Path) -> None:
    record_hostile(store)
    shown = Watched(browser, written(store, tmp_path))
    shown.unfold()
    for width in (320, 380, 1280):
        shown.page.set_viewport_size({"width": width, "height": 700})
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    shown.page.close()


def test_both_themes_can_be_read(browser: Browser, recorded: Store, tmp_path: Path) -> None:
    seen = set()
    for scheme in ("light", "dark"):
        shown = Watched(browser, written(recorded, tmp_path), color_scheme=scheme)
        shown.unfold()
        least = shown.page.evaluate(CONTRAST)
        assert least >= 4.5, (scheme, least)
        seen.add(shown.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        shown.page.close()
    assert len(seen) == 2


CONTRAST = """() => {
  const light = c => {
    const [r, g, b] = c.map(v => v / 255)
      .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  let least = 99;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !e.checkVisibility() || e.closest("svg, td.n")) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color).slice(0, 3)), light(behind(e))].sort();
    least = Math.min(least, (Math.max(a, b) + .05) / (Math.min(a, b) + .05));
  }
  return least;
}"""
"""The least contrast of a text with what is behind it, as WCAG reckons."""


def test_paper_gets_what_is_folded(browser: Browser, recorded: Store, tmp_path: Path) -> None:
    page = Watched(browser, written(recorded, tmp_path)).page
    page.emulate_media(media="print")
    said = page.locator("#step-1 .message").first
    assert said.evaluate("e => e.checkVisibility({contentVisibilityAuto: true})")
    assert page.pdf()[:4] == b"%PDF"
    page.close()


def test_a_report_is_a_page_too(browser: Browser, store: Store, tmp_path: Path) -> None:
    run = command_run(
        argv=("pytest", EVIL), stdout=Output.of(EVIL.encode()), stderr=Output.of(EVIL.encode())
    )
    report = report_of(run, title=EVIL, description=EVIL, tags=[EVIL], reporter=EVIL, status=EVIL)
    file = tmp_path / "report.html"
    file.write_bytes(export_report(store, report, "html", ExportOptions()))
    shown = Watched(browser, file, viewport={"width": 380, "height": 700})
    assert (shown.said, shown.asked) == ([], [file.as_uri()])
    assert shown.page.title().startswith(MARK)
    assert shown.page.locator("pre").count() == 3
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 380
    shown.page.close()
