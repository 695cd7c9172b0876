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
  let bits = mixes.ordered;

  const show = () => {
    own.value = bits.join("");
    for (const cell of svg.querySelectorAll(".cell")) {
      const width = bits[Number(cell.dataset.layer)];
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
    bits = mixes[mix.value];
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
  svg.addEventListener("click", ({ target }) => {
    const layer = target.closest(".cell")?.dataset.layer;
    if (layer === undefined) return;
    const fewer = (width) => widths.at(widths.indexOf(width) - 1); // from the fewest back to the most
    bits = bits.map((width, i) => (i === Number(layer) ? fewer(width) : width));
    show();
  });
  show();
});
