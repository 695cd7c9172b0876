/* The layers that have four bits, and what that takes of a budget. Words are those of page.py. */
explain("budget", ({ figure, rows, set, slider }) => {
  const svg = figure.querySelector("svg");
  const [wide, narrow, budget] = ["wide", "narrow", "budget"].map((name) => Number(svg.dataset[name]));
  const order = [...rows.keys()].sort((a, b) => rows[a].moved - rows[b].moved);
  const sum = (name, some) => some.reduce((total, i) => total + rows[i][name], 0);
  const all = sum("weights", order);
  let chosen = new Set(order.filter((i) => rows[i].narrow));

  const show = () => {
    for (const cell of svg.querySelectorAll(".cell")) {
      const isNarrow = chosen.has(Number(cell.dataset.layer));
      cell.classList.toggle("narrow", isNarrow);
      cell.querySelector("text").textContent = isNarrow ? narrow : wide;
    }
    const few = [...chosen];
    const bits = wide - ((wide - narrow) * sum("weights", few)) / all;
    figure.classList.toggle("wrong", bits > budget);
    set({
      says:
        `${few.length} of ${rows.length} layers have four bits: ${bits.toFixed(2)} bits a weight, ${bits <= budget ? "within" : "over"} the ` +
        `budget of five. One by one they move a loss by ${sum("moved", few).toFixed(0)} thousandths of a nat, added up.`,
    });
  };

  const said = (count) => `${count} layers`;
  const first = slider("Four bits, the least sensitive first", { min: 0, max: rows.length, value: chosen.size, said }, () => {
    chosen = new Set(order.slice(0, first.value));
    show();
  });
  svg.addEventListener("click", ({ target }) => {
    const layer = target.closest(".cell")?.dataset.layer;
    if (layer === undefined) return;
    const i = Number(layer);
    chosen.has(i) ? chosen.delete(i) : chosen.add(i);
    first.value = chosen.size;
    show();
  });
  show();
});
