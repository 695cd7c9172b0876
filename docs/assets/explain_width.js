/* Any fixed-point format over the stored histogram of a layer's weights, with what was measured of
   it. Sums and words are those of madl/training/width_panel.py. */
explain("width", ({ figure, rows, set, slider, make, number, perCent }) => {
  const [WIDTH, TOP, FLOOR, MOST_TICKS] = [420, 22, 168, 200];
  const bars = rows.filter((row) => row.what === "bar");
  const points = rows.filter((row) => row.what === "point");
  const svg = figure.querySelector("svg");
  const top = Number(svg.dataset.top);

  const lost = (width, frac) => {
    const step = 2 ** -frac;
    const codes = 2 ** (width - 1) - 1;
    const squared = (x) => {
      const code = Math.min(Math.floor(x / step + 0.5), codes);
      return (code * step ** 3) / 12 + (x - code * step) ** 3 / 3;
    };
    let [total, zeroed, clipped, error, signal] = [0, 0, 0, 0, 0];
    for (const { from, to, count } of bars) {
      const density = count / (to - from);
      total += count;
      zeroed += density * Math.max(Math.min(to, step / 2) - from, 0);
      clipped += density * Math.max(to - Math.max(from, codes * step), 0);
      error += density * (squared(to) - squared(from));
      signal += (density * (to ** 3 - from ** 3)) / 3;
    }
    return { zeroed: zeroed / total, clipped: clipped / total, db: 10 * Math.log10(signal / error) };
  };

  const x = (value) => WIDTH * Math.min(value / top, 1);
  const draw = (step, largest) => {
    const [low, high] = svg.querySelectorAll(".zone");
    low.setAttribute("width", x(step / 2));
    high.setAttribute("x", x(largest));
    high.setAttribute("width", WIDTH - x(largest));
    const count = Math.floor(Math.min(largest, top) / step);
    const ticks = count > MOST_TICKS ? [] : Array.from({ length: count }, (_, k) => `M${x((k + 1) * step)} ${TOP}V${FLOOR + 6}`);
    svg.querySelector(".grid").setAttribute("d", ticks.join(""));
  };
  const interval = (row) => `${perCent(row.test)} [${(100 * row["test low"]).toFixed(1)}, ${(100 * row["test high"]).toFixed(1)}]`;

  const show = () => {
    const [width, frac] = [bits.value, behind.value];
    const step = 2 ** -frac;
    const largest = (2 ** (width - 1) - 1) * step;
    draw(step, largest);
    const power = frac > 0 ? `1/${2 ** frac}` : String(2 ** -frac);
    const found = points.filter((row) => row.width === width && row.weights === frac);
    const cells = found.map((row) => [row.inputs, perCent(row.validation), row.test === null ? "not measured" : interval(row)]);
    const body = figure.querySelector('[data-f="measured"]');
    body.replaceChildren(
      ...(cells.length ? cells : [["–", "not measured", "not measured"]]).map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell)))),
    );
    const made = bars.length ? lost(width, frac) : null;
    if (made) set({ zeroed: perCent(made.zeroed), clipped: perCent(made.clipped), db: `${number(made.db)} dB` });
    const lose = made ? ` ${perCent(made.zeroed)} of this layer's weights become zero, ${perCent(made.clipped)} are clipped.` : "";
    const measured = found.length
      ? `measured with ${found.length} fraction width${found.length > 1 ? "s" : ""} of the inputs`
      : "not measured";
    set({
      step: power,
      largest: number(largest),
      says: `${width} bits, ${frac} behind the point: values ${power} apart up to ${number(largest)}.${lose} The accuracy is ${measured}.`,
    });
  };

  const bits = slider("Width", { min: 2, max: 32, value: points[0].width }, show);
  const behind = slider("Behind the point", { min: 0, max: 16, value: points[0].weights }, show);
  figure.explained = { lost };
  show();
});
