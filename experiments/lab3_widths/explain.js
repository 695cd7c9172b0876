/* The bits of each layer, what they take of a budget, and how far they move a loss. Words are those of page.py. */
explain("budget", ({ figure, rows, set, choice, make }) => {
  const svg = figure.querySelector("svg");
  const [narrow, rival, budget] = ["narrow", "rival", "budget"].map((name) => Number(svg.dataset[name]));
  const widths = svg.dataset.widths.split(",").map(Number);
  const sum = (each) => rows.reduce((total, row, i) => total + each(row, i), 0);
  const moved = (bits) => sum((row, i) => row[`moved at ${bits[i]}`] ?? 0);
  const mixes = {
    ordered: rows.map((row) => row.ordered),
    allocated: rows.map((row) => row.allocated),
    rival: rows.map(() => rival),
  };
  const cells = [...svg.querySelectorAll(".cell")]; // a row each
  let bits = [...mixes.ordered];

  const show = () => {
    own.value = bits.join("");
    for (const [i, cell] of cells.entries()) {
      const width = bits[i];
      cell.setAttribute("aria-label", `${rows[i].block} ${rows[i].layer}: ${width} bits`);
      cell.classList.toggle("narrow", width === narrow);
      cell.querySelector("text").textContent = width;
    }
    const few = bits.filter((width) => width === narrow).length;
    const mean = sum((row, i) => bits[i] * row.weights) / sum((row) => row.weights);
    figure.classList.toggle("wrong", mean > budget);
    set({
      says:
        `${few} of ${rows.length} layers have four bits: ${mean.toFixed(2)} bits a weight, ${mean <= budget ? "within" : "over"} the ` +
        `budget of five. Added up, widths move a loss by ${moved(bits).toFixed(0)} thousandths of a nat; allocated, by ` +
        `${moved(mixes.allocated).toFixed(0)}.`,
    });
  };

  const options = [
    ["ordered", "4 or 6 bits by sensitivity"],
    ["allocated", "4 to 8 bits, allocated"],
    ["rival", "5 bits for all"],
  ];
  const mix = choice("Begin with", options, "ordered", () => {
    bits = [...mixes[mix.value]];
    show();
  });
  /* Each layer's width, a digit, so that the address tells the layers that were changed. */
  const own = make("input", { type: "hidden" });
  own.addEventListener("input", () => {
    const given = [...own.value].map(Number);
    if (given.length === rows.length && given.every((width) => widths.includes(width))) bits = given;
    show();
  });
  figure.querySelector(".tools").append(own);
  /* A layer is a button: arrows go from one to the next, and the address follows a click. */
  svg.removeAttribute("aria-hidden");
  for (const [name, value] of Object.entries({ role: "group", "aria-label": "Layers" })) svg.setAttribute(name, value);
  const reach = (at) => cells.forEach((cell, i) => (cell.tabIndex = i === at ? 0 : -1));
  for (const [i, cell] of cells.entries()) {
    cell.setAttribute("role", "button");
    cell.addEventListener("click", () => {
      bits[i] = widths.at(widths.indexOf(bits[i]) - 1); // from the fewest back to the most
      show();
    });
    cell.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) {
        const next = (i + step + cells.length) % cells.length;
        reach(next);
        cells[next].focus();
      } else if (event.key === "Enter" || event.key === " ") cell.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      else return;
      event.preventDefault();
    });
  }
  reach(0);
  show();
});
