"""What a reader would complain of on a page, looked for in a real browser."""

import contextlib
import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

WIDTHS = {"wide": 1280, "zoomed": 640, "phone": 390}  # zoomed: a wide window at 200 %

SEEN = """async () => {
  await new Promise((done) => setTimeout(() => requestAnimationFrame(done), 50));  // observers
  const seen = (e) => e.checkVisibility() && e.getClientRects().length > 0;
  const all = (what) => [...document.querySelectorAll(what)];
  const wide = (e) => e.scrollWidth > e.clientWidth + 1;
  const within = (e, what) => [...e.querySelectorAll(what)].filter(seen);
  const charts = all("figure.chart").filter(seen).map((figure) =>
    within(figure, ".view > svg").map((svg) => svg.getAttribute("class")).join());
  const tops = (e) => {
    const range = document.createRange();
    range.selectNodeContents(e);
    return [...range.getClientRects()].map((box) => box.top);
  };
  const name = /^(?=.{1,24}$)[A-Za-z]\\S*-\\S*\\d\\S*$/;  // ResNet-18
  const unnamed = "img:not([alt]), :is(.view, .graph):not([aria-label], [aria-hidden])";
  return {
    "picture without a name": all(unnamed).length,
    "name on two lines": all("main td").filter((e) => seen(e) && name.test(e.textContent.trim())
      && Math.max(...tops(e)) - Math.min(...tops(e)) > 8).length,
    "wider than the window": Math.max(0, document.documentElement.scrollWidth - innerWidth),
    "empty rail": all(".md-sidebar").filter((rail) => seen(rail)
      && getComputedStyle(rail).position !== "fixed" && !within(rail, "a").length).length,
    "chart not drawn once": charts.filter((drawn) => !["wide", "narrow"].includes(drawn)).length,
    "id twice": all("[id]").length - new Set(all("[id]").map((e) => e.id)).size,
    "code wider than its box": all("pre > code").filter((e) => seen(e) && wide(e)).length,
    "scrolls and takes no focus": all("main *").filter((e) => seen(e) && wide(e) && e.tabIndex < 0
      && /auto|scroll/.test(getComputedStyle(e).overflowX)
      && !e.querySelector("a, button, input, select, [tabindex]")).length,
  };
}"""

RAN = """document.readyState === "complete" && (document.documentElement.matches(".evidence")
  || window.document$ && [...document.querySelectorAll("script[src]")].every((e) => e.ran))"""

MOVED = """async () => {
  const moves = [];
  const look = new PerformanceObserver((list) => moves.push(...list.getEntries()));
  look.observe({ type: "layout-shift", buffered: true });
  await new Promise((done) => setTimeout(() => requestAnimationFrame(done), 50));
  return moves.reduce((sum, move) => sum + move.value, 0);
}"""
MOST_MOVED = 0.1  # the share of the window that may move as a page opens: "good", web.dev/cls

UNFOLD = "document.querySelectorAll('main details').forEach((fold) => (fold.open = true))"


@contextlib.contextmanager
def served(site: Path, prefix: str = "/") -> Iterator[str]:
    """The address at which a server has the site, below `prefix`; what it has not is its 404.html,
    as on GitHub Pages."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            inside = path.startswith(prefix)
            return super().translate_path("/" + path.removeprefix(prefix)) if inside else ""

        def send_error(self, code: int, *_: object) -> None:
            body = (site / "404.html").read_bytes()
            self.send_response(code)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    make = functools.partial(Handler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), make) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}{prefix}"
        server.shutdown()
        thread.join()


def opened(browser, url: str, *, width: int = 1280, scheme: str = "light", failures=None, **more):
    """The page, loaded from where it lies alone; what fails on it is added to `failures`."""
    parts = urlsplit(url)
    own = (f"{parts.scheme}://{parts.netloc}/", "data:")
    page = browser.new_page(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        offline=parts.scheme == "file",
        **more,
    )
    failures = failures if failures is not None else []
    page.on("requestfailed", lambda request: failures.append(request.url))
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.on("console", lambda said: failures.append(said.text) if said.type == "error" else None)
    page.on("request", lambda r: None if r.url.startswith(own) else failures.append(r.url))
    page.on("response", lambda r: failures.append(r.url) if r.status >= 400 else None)
    page.add_init_script("document.addEventListener('load', (e) => (e.target.ran = true), true)")
    page.goto(url)
    if more.get("java_script_enabled", True):
        page.wait_for_function(RAN)
    return page


def complaints(browser, url: str, *, width: int, scheme: str) -> dict[str, object]:
    """All that is wrong with a page as it opens, then with all that unfolds; {} is nothing."""
    failures: list[str] = []
    page = opened(browser, url, width=width, scheme=scheme, failures=failures)
    found = [*page.evaluate(SEEN).items()]
    if url.startswith("http"):  # in a folder, the face comes after the first lines
        found.append(("moves as it opens", max(0, page.evaluate(MOVED) - MOST_MOVED)))
    page.evaluate(UNFOLD)
    found += [*page.evaluate(SEEN).items(), ("failed", failures)]
    page.close()
    return {name: what for name, what in found if what}


def search(page, query: str) -> list[str]:
    """The files of the pages that the site's own search finds, the first five."""
    page.wait_for_load_state("networkidle")
    page.locator(".md-search__input").first.click()
    page.locator(".md-search__input").first.fill("")
    page.keyboard.type(query, delay=20)
    said = page.locator(".md-search-result__meta")
    page.wait_for_function("e => /match|found/.test(e.textContent)", arg=said.element_handle())
    links = page.locator(".md-search-result__item > a").all()[:5]
    return [urlsplit(link.get_attribute("href")).path.rpartition("/")[2] for link in links]
