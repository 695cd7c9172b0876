/* What a chart gains by a script: values under the pointer and by arrow keys, names that hide their
   series, a large view, its picture as a file and its address. Without it, the figure is complete. */
(() => {
  const REACH = 22; // pixels from the pointer to a point
  const LOOK = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "fill-opacity", "opacity", "display", "font-family", "font-size", "font-weight", "text-anchor", "paint-order", "stroke-linejoin"];

  const make = (tag, attributes, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  /* A mark of the legend, drawn twice its size from x on: a marker, a line or both, or the shades of a heat map. */
  const sample = (pen, mark, x, y, heat) => {
    const wide = 2 * mark.offsetWidth;
    pen.fillStyle = pen.strokeStyle = getComputedStyle(mark).color;
    if (mark.matches(".shades i")) {
      pen.fillStyle = pen.createLinearGradient(x, 0, x + wide, 0);
      pen.fillStyle.addColorStop(0, `${heat}0d`); // 5 %, as in charts.css
      pen.fillStyle.addColorStop(1, `${heat}a6`);
      pen.fillRect(x, y - 18, wide, 20);
    } else if (mark.matches(".line")) {
      const dashes = mark.style.getPropertyValue("--dashes").matchAll(/([\d.]+)px ([\d.]+)px/g);
      pen.lineWidth = 4;
      pen.setLineDash([...dashes].map(([, from, to]) => 2 * (to - from)));
      pen.stroke(new Path2D(`M${x} ${y - 8}h${wide}`));
    }
    pen.fillText(mark.textContent, x + (wide - pen.measureText(mark.textContent).width) / 2, y);
  };

  /* The legend in lines from y on, without what is hidden or named at its line; the y below it. */
  const legendIn = (pen, figure, y, right, { ink, heat }) => {
    const shown = [...figure.querySelectorAll('.legend li:not(.direct, :has([aria-pressed="false"]))')];
    let x = 20;
    for (const entry of shown) {
      const parts = [...(entry.querySelector("button") ?? entry).childNodes];
      const width = (part) => (part.nodeType === Node.TEXT_NODE ? pen.measureText(part.data).width : 2 * part.offsetWidth) + 10;
      const room = parts.reduce((sum, part) => sum + width(part), 0);
      if (x > 20 && x + room > right) [x, y] = [20, y + 36];
      for (const part of parts) {
        pen.fillStyle = ink;
        if (part.nodeType === Node.TEXT_NODE) pen.fillText(part.data, x, y);
        else sample(pen, part, x, y, heat);
        x += width(part);
      }
      x += 24;
    }
    return shown.length ? y + 36 : y;
  };

  /* The figure as a PNG, twice its size: title, legend, the chart as it looks here, and where it is from. */
  const picture = (figure, svg) => {
    const style = getComputedStyle(figure);
    const [ink, paper, heat, serif, sans] = ["--chart-ink", "--chart-paper", "--c-heat", "--serif", "--sans"].map((name) => style.getPropertyValue(name));
    const copy = svg.cloneNode(true);
    const parts = copy.querySelectorAll("*");
    svg.querySelectorAll("*").forEach((part, i) => {
      const look = getComputedStyle(part);
      for (const name of LOOK) parts[i].style.setProperty(name, look.getPropertyValue(name));
    });
    const { width, height } = svg.viewBox.baseVal;
    for (const [name, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height })) copy.setAttribute(name, value);
    const canvas = make("canvas", { width: 2 * width + 40 });
    const pen = canvas.getContext("2d");
    const legend = () => {
      pen.font = `24px ${sans}`;
      return legendIn(pen, figure, 90, canvas.width - 20, { ink, heat });
    };
    const top = legend() - 20;
    canvas.height = top + 2 * height + 60; // and clears it
    const image = new Image();
    return new Promise((done, failed) => {
      image.onerror = failed;
      image.onload = () => {
        pen.fillStyle = paper;
        pen.fillRect(0, 0, canvas.width, canvas.height);
        legend();
        pen.fillStyle = ink;
        pen.font = `600 28px ${serif}`;
        pen.fillText(figure.querySelector(".title")?.textContent ?? "", 20, 46, canvas.width - 40);
        pen.drawImage(image, 20, top, 2 * width, 2 * height);
        pen.font = `18px ${sans}`;
        pen.fillText(address(figure), 20, canvas.height - 18, canvas.width - 40);
        canvas.toBlob(done);
      };
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    });
  };
  const address = (figure) => location.href.split("#")[0] + (figure.state?.() ?? `#${figure.id}`);
  const copyLink = (figure) => {
    const link = make("button", { type: "button" }, "Copy link");
    link.hidden = !navigator.clipboard;
    link.addEventListener("click", async () => {
      await navigator.clipboard.writeText(address(figure));
      link.textContent = "Copied";
    });
    figure.querySelector("figcaption").append(" ", link);
  };

  const enhance = (figure) => {
    const view = figure.querySelector(".view");
    const legend = figure.querySelector(".legend");
    const [wide, narrow] = view.querySelectorAll(":scope > svg");
    const twins = narrow.querySelectorAll(".pt");
    const titles = new Map();
    wide.querySelectorAll(".pt").forEach((point, i) => {
      const title = point.querySelector("title");
      titles.set(point, title.textContent).set(twins[i], title.textContent);
      title.remove(); // or the browser shows a second tooltip
    });
    const tip = make("div", { class: "tip", "aria-hidden": "true", hidden: "" });
    const said = make("div", { class: "said", "aria-live": "polite" });
    view.append(tip);
    figure.append(said);

    let current = null;
    const points = () => {
      const svg = wide.getClientRects().length ? wide : narrow;
      const seen = [...svg.querySelectorAll(".pt")].filter((point) => !point.closest(".off"));
      return seen.sort((a, b) => series(a) - series(b));
    };
    const series = (point) => point.closest("[data-s]").dataset.s;
    const box = (point) => point.getBoundingClientRect();
    const middle = ({ left, right }) => (left + right) / 2;

    const show = (point, aloud) => {
      if (point === current) return;
      current?.classList.remove("on");
      current = point;
      tip.hidden = !point;
      if (!point) return;
      point.classList.add("on");
      tip.textContent = titles.get(point);
      const [frame, at] = [box(view), box(point)];
      const left = Math.min(middle(at) - tip.offsetWidth / 2, frame.right - tip.offsetWidth);
      const above = at.top - tip.offsetHeight - 8;
      tip.style.left = `${Math.max(left - frame.left, 0)}px`;
      tip.style.top = `${(above > 0 ? above : at.bottom + 8) - frame.top}px`;
      if (aloud) said.textContent = tip.textContent;
    };

    const nearest = ({ clientX: x, clientY: y }) => {
      let [best, least] = [null, REACH];
      for (const point of points()) {
        const at = box(point);
        const gap = Math.hypot(Math.max(at.left - x, 0, x - at.right), Math.max(at.top - y, 0, y - at.bottom));
        const far = gap + Math.hypot(middle(at) - x, (at.top + at.bottom) / 2 - y) / 1000;
        if (far < least) [best, least] = [point, far];
      }
      return best;
    };

    const along = (step) => {
      const mine = points().filter((point) => series(point) === series(current));
      return mine[Math.min(Math.max(mine.indexOf(current) + step, 0), mine.length - 1)];
    };
    const across = (step) => {
      const all = points();
      const every = [...new Set(all.map(series))];
      const next = every.at((every.indexOf(series(current)) + step) % every.length);
      const far = (point) => Math.abs(middle(box(point)) - middle(box(current)));
      return all.filter((point) => series(point) === next).reduce((a, b) => (far(b) < far(a) ? b : a));
    };
    const moves = {
      ArrowRight: () => along(1),
      ArrowLeft: () => along(-1),
      ArrowDown: () => across(1),
      ArrowUp: () => across(-1),
      Home: () => along(-Infinity),
      End: () => along(Infinity),
    };

    view.onpointermove = view.onpointerdown = (event) => show(nearest(event));
    view.onpointerleave = (event) => event.pointerType === "mouse" && show(null);
    view.onblur = () => show(null);
    view.addEventListener("keydown", (event) => {
      if (event.key === "Escape") show(null);
      if (!moves[event.key] || !points().length) return;
      event.preventDefault();
      show(current ? moves[event.key]() : points()[0], true);
    });
    view.addEventListener("focus", () => view.matches(":focus-visible") && show(points()[0], true));
    view.tabIndex = 0;
    view.setAttribute("role", "application");
    view.setAttribute("aria-roledescription", "chart, read by arrow keys");

    const toggle = (name) => {
      let off = false;
      for (const part of view.querySelectorAll(`[data-s="${name}"]`)) off = part.classList.toggle("off");
      legend?.querySelector(`[data-s="${name}"] button`)?.setAttribute("aria-pressed", !off);
      show(null);
    };
    for (const entry of legend?.querySelectorAll("[data-s]") ?? []) {
      const button = make("button", { type: "button", "aria-pressed": "true" }, ...entry.childNodes);
      button.onclick = () => toggle(entry.dataset.s);
      entry.append(button);
    }
    view.onclick = (event) => {
      const name = event.target.closest?.(".name");
      if (name) toggle(name.dataset.s);
    };

    const body = [legend, view].filter(Boolean);
    const close = make("button", { type: "button", class: "close" }, "Close");
    const dialog = make("dialog", { "aria-label": "Chart, enlarged" }, close);
    const enlarge = make("button", { type: "button" }, "Enlarge");
    enlarge.addEventListener("click", () => {
      show(null); // what is said of a point stands beside it, at the old size
      figure.style.minHeight = `${figure.offsetHeight}px`;
      dialog.append(...body, said);
      dialog.showModal();
    });
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.addEventListener("close", () => {
      show(null);
      figure.querySelector("figcaption").before(...body, said);
      figure.style.minHeight = "";
      enlarge.focus();
    });
    const png = make("button", { type: "button" }, "PNG");
    png.addEventListener("click", async () => {
      const url = URL.createObjectURL(await picture(figure, wide));
      make("a", { href: url, download: `${figure.id}.png` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10000);
    });
    figure.querySelector("figcaption").append(" ", png);
    copyLink(figure);
    figure.querySelector("figcaption").append(" ", enlarge);
    figure.append(dialog);
  };

  const start = () => {
    const near = new IntersectionObserver((seen) => {
      for (const { target, isIntersecting } of seen) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        enhance(target);
      }
    }, { rootMargin: "50%" });
    document.querySelectorAll("figure.chart").forEach((figure) => near.observe(figure));
    document.querySelectorAll("figure.explain").forEach(copyLink);
  };
  start();
})();
