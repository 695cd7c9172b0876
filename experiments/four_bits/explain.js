{
  /* Cells by column and line, the darker the more answers change; page.py draws them so, too. */
  const heat = (svg, cells, columns, lines, head) => {
    const [WIDE, HIGH, LEFT, ABOVE] = [84, 32, 140, 40];
    const most = Math.max(...cells.map(({ row }) => row.changed));
    let text = `<text class="note" x="${LEFT}" y="12">${head}</text>`;
    columns.forEach((column, i) => {
      text += `<text class="note" x="${LEFT + WIDE * (i + 0.5)}" y="30" text-anchor="middle">${column}</text>`;
    });
    lines.forEach((line, j) => {
      text += `<text class="note" x="0" y="${ABOVE + HIGH * j + 20}">${line}</text>`;
    });
    for (const { column, line, row } of cells) {
      const [x, y] = [LEFT + WIDE * columns.indexOf(column), ABOVE + HIGH * lines.indexOf(line)];
      text +=
        `<g class="cell"><title>${row.low.toFixed(1)} to ${row.high.toFixed(1)} %</title>` +
        `<rect x="${x + 2}" y="${y + 2}" width="${WIDE - 4}" height="${HIGH - 4}" style="fill-opacity: ${(0.08 + (0.8 * row.changed) / most).toFixed(2)}"/>` +
        `<text x="${x + WIDE / 2}" y="${y + 20}" text-anchor="middle">${row.changed.toFixed(1)} %</text></g>`;
    }
    svg.setAttribute("viewBox", `0 0 ${LEFT + WIDE * columns.length} ${ABOVE + HIGH * lines.length}`);
    svg.innerHTML = text;
  };

  const share = (row) => `${row.changed.toFixed(1)}\u00a0% [${row.low.toFixed(1)}, ${row.high.toFixed(1)}]`;

  /* The grid of formats, turned: one part of a format runs across, the others down. */
  explain("grid", ({ figure, rows, set, choice }) => {
    const PARTS = ["element", "block", "scale"];
    const TITLES = { e2m1: "FP4", int4: "INT4", 16: "16", 32: "32", row: "row", floor: "2ⁿ, floor", even: "2ⁿ, even", e4m3: "E4M3", fp16: "FP16" };
    const NAMED = { MXFP4: ["e2m1", 32, "floor"], NVFP4: ["e2m1", 16, "e4m3"] };
    const OF = { element: "elements", block: "values per scale", scale: "scale" };
    const titles = (row, parts) =>
      parts.map((part) => `${part === "block" ? "by " : ""}${TITLES[row[part]]}`).join(", ");
    const named = (row) =>
      `${TITLES[row.element]}, ${row.block} values under ${row.scale === "e4m3" ? "E4M3" : "a power of two"}`;
    const values = (part) => [...new Set(rows.map((row) => row[part]))];
    const show = () => {
      const shown = rows.filter((row) => row.operands === operands.value);
      const down = PARTS.filter((part) => part !== across.value);
      const cells = shown.map((row) => ({ column: TITLES[row[across.value]], line: titles(row, down), row }));
      const lines = [...new Set(cells.map(({ line }) => line))];
      heat(figure.querySelector("svg.graph"), cells, values(across.value).map((value) => TITLES[value]), lines, OF[across.value]);
      const told = Object.entries(NAMED).map(([name, parts]) => {
        const row = shown.find((row) => PARTS.every((part, i) => row[part] === parts[i]));
        return `${name} (${named(row)}) changes ${share(row)}`;
      });
      set({ says: `${told.join("; ")}. Across: ${OF[across.value]}.` });
    };
    const operands = choice("In four bits", values("operands").map((name) => [name, name]), rows[0].operands, show);
    const across = choice("Across", PARTS.map((part) => [part, OF[part]]), "block", show);
    show();
  });

  /* Methods in the formats that have a name, without outliers and with some. */
  explain("repairs", ({ figure, rows, set, choice }) => {
    const values = (of, part) => [...new Set(of.map((row) => row[part]))];
    const kinds = values(rows, "outliers");
    const show = () => {
      const shown = rows.filter((row) => row.outliers === outliers.value);
      const cells = shown.map((row) => ({ column: row.format, line: row.method, row }));
      heat(figure.querySelector("svg.graph"), cells, values(shown, "format"), values(shown, "method"), "weights and inputs");
      const own = (method) => shown.find((row) => row.format === "MXFP4" && row.method === method);
      set({ says: `MXFP4 changes ${share(own("rounding"))} as it comes, ${share(own("Hadamard"))} rotated.` });
    };
    const outliers = choice("Outliers", kinds.map((kind) => [kind, kind]), kinds.at(-1), show);
    show();
  });

  /* A block of a layer's input in which one value grows, in every format: all of it was measured. */
  explain("block", ({ figure, rows, set, slider }) => {
    const factors = [...new Set(rows.map((row) => row.factor))];
    const parts = [...figure.querySelectorAll(".block")];
    const isDead = (row) => row.rounded === 0 && row.value !== 0;
    const show = () => {
      const dead = new Map();
      for (const part of parts) {
        const own = rows.filter((row) => row.format === part.dataset.format && row.factor === factors[at.value]);
        const middle = part.querySelector("svg").viewBox.baseVal.height / 2;
        const sizes = own.map((row) => Math.abs(row.value)).sort((a, b) => b - a);
        const most = sizes[1]; // the largest is the one that grows
        own.forEach((row, i) => {
          const bars = { was: row.value, bar: row.rounded };
          for (const [look, value] of Object.entries(bars)) {
            const high = Math.min(Math.abs(value) / most, 1) * (middle - 2);
            const bar = part.querySelectorAll(`.${look}`)[i];
            bar.setAttribute("y", value > 0 ? middle - high : middle);
            bar.setAttribute("height", high);
          }
          part.querySelectorAll(".at")[i].classList.toggle("dead", isDead(row));
        });
        const count = own.filter(isDead).length;
        dead.set(part.dataset.format, count);
        set({ [`dead ${part.dataset.format}`]: `${count} of ${own.length} become zero` });
      }
      const [best, least] = [...dead].reduce((a, b) => (b[1] < a[1] ? b : a));
      set({ says: `${best} turns fewest values into zero, ${least}.` });
    };
    const at = slider("One value", { min: 0, max: factors.length - 1, value: 6, said: (i) => `${factors[i] < 10 ? factors[i].toFixed(1) : Math.round(factors[i])} × the largest` }, show);
    show();
  });
}
