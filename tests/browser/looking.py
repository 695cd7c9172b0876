"""What a reader would complain of on a page, looked for in a real browser."""

from pathlib import Path

WIDTHS = {"wide": 1280, "zoomed": 640, "phone": 390}  # zoomed: a wide window at 200 %

SEEN = """() => {
  const seen = (e) => e.checkVisibility() && e.getClientRects().length > 0;
  const all = (what) => [...document.querySelectorAll(what)];
  const within = (e, what) => [...e.querySelectorAll(what)].filter(seen);
  const charts = all("figure.chart").filter(seen).map((figure) =>
    within(figure, ".view > svg").map((svg) => svg.getAttribute("class")).join());
  const unnamed = "img:not([alt]), :is(.view, .graph):not([aria-label], [aria-hidden])";
  return {
    "picture without a name": all(unnamed).length,
    "wider than the window": Math.max(0, document.documentElement.scrollWidth - innerWidth),
    "empty rail": all(".md-sidebar").filter((rail) => seen(rail)
      && getComputedStyle(rail).position !== "fixed" && !within(rail, "a").length).length,
    "chart not drawn once": charts.filter((drawn) => !["wide", "narrow"].includes(drawn)).length,
    "id twice": all("[id]").length - new Set(all("[id]").map((e) => e.id)).size,
  };
}"""


def opened(browser, url: str, *, width: int = 1280, scheme: str = "light", failures=None, **more):
    """The page, loaded without a network; what fails on it is added to `failures`."""
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, **more
    )
    failures = failures if failures is not None else []
    page.on("requestfailed", lambda request: failures.append(request.url))
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.on("console", lambda said: failures.append(said.text) if said.type == "error" else None)
    page.on("request", lambda r: failures.append(r.url) if r.url.startswith("http") else None)
    page.goto(url)
    page.wait_for_load_state("load")
    return page


def complaints(browser, path: Path, *, width: int, scheme: str) -> dict[str, object]:
    """All that is wrong with a page as it opens; nothing is an empty dictionary."""
    failures: list[str] = []
    page = opened(browser, path.as_uri(), width=width, scheme=scheme, failures=failures)
    found = page.evaluate(SEEN)
    page.close()
    return {name: what for name, what in {**found, "failed": failures}.items() if what}
