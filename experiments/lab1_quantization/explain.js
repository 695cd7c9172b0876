/* The window of a fixed-point format over the magnitudes of weights and inputs, and what was
   measured of it. Places and words are those of page.py. */
explain("width", ({ figure, rows, set, slider, check, perCent }) => {
  const formats = rows.filter((row) => row.what === "format");
  const own = formats.filter((row) => row.points === "own");
  const svg = figure.querySelector("svg");
  const [first, octaves] = [svg.dataset.first, svg.dataset.octaves].map(Number);
  const wide = svg.viewBox.baseVal.width;
  const x = (octave) => wide * Math.min(Math.max((octave - first) / octaves, 0), 1);
  const losses = ["weights to zero", "weights clipped", "inputs to zero", "inputs clipped"];

  const show = () => {
    const { width } = own[bits.value];
    const one = formats.find((row) => row.width === width && row.points === "one");
    both.disabled = !one;
    const at = both.checked && one ? one : own[bits.value];
    const zones = svg.querySelectorAll(".zone");
    [at.weights, at.inputs].forEach((frac, i) => {
      const high = x(width - 1 - frac);
      zones[2 * i].setAttribute("width", x(-frac - 1));
      zones[2 * i + 1].setAttribute("x", high);
      zones[2 * i + 1].setAttribute("width", wide - high);
    });
    for (const name of losses) set({ [name]: perCent(at[name]) });
    set({
      accuracy: perCent(at.accuracy),
      says:
        at.weights === at.inputs
          ? `${width} bits, ${at.weights} after the point: one window for both.`
          : `${width} bits: ${at.weights} after the point of weights, ${at.inputs} after that of inputs.`,
    });
  };

  const said = (index) => `${own[index].width} bits`;
  const bits = slider("Width", { min: 0, max: own.length - 1, value: 0, said }, show);
  const both = check("One fraction width for both", false, show);
  figure.explained = { x };
  show();
});
