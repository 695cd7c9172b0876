/* The memory of any stored model under any format, or of one whose sizes a reader gives: its weights
   alone. The rows hold every byte; here they are added. The words are those of page.py. */
explain("memory", ({ figure, rows, set, choice, check, quantity, perCent, thousands }) => {
  const PARTS = ["Linear weights", "other parameters", "activations", "workspaces", "written-out weight"];
  const WIDTH = 340;
  const OWN = "a model of your own";
  const sum = (row) => PARTS.reduce((all, part) => all + row[part], 0);
  const mib = (bytes) => {
    const size = bytes / 2 ** 20;
    return size >= 100 ? thousands(Math.round(size)) : size.toFixed(1);
  };
  const own = ({ format, bits }) => {
    const sizes = [(Number(linear.value) * 1e6 * bits) / 8, Number(others.value) * 4e6, 0, 0, 0];
    return { model: "Your model's weights", format, bits, ...Object.fromEntries(PARTS.map((part, i) => [part, sizes[i]])) };
  };
  const find = (name) =>
    model.value === OWN
      ? own(formats.find((row) => row.format === name))
      : rows.find((row) => row.model === model.value && row.format === name);

  const show = () => {
    for (const input of [linear, others]) input.closest("label").hidden = model.value !== OWN;
    const [dense, held] = [find("FP32"), find(format.value)];
    const isPacked = packed.checked && held !== dense;
    const chosen = isPacked ? { ...held } : { ...dense };
    if (isPacked && !written.checked) chosen["written-out weight"] = 0;
    packed.disabled = held === dense; // FP32 is packed as it is
    written.disabled = !isPacked;
    const whole = sum(dense) || 1;
    [dense, chosen].forEach((row, j) => {
      let left = 0;
      figure.querySelectorAll(`[data-bar="${j}"]`).forEach((bar, i) => {
        const width = (WIDTH * row[PARTS[i]]) / whole;
        bar.setAttribute("x", left);
        bar.setAttribute("width", width);
        left += width;
        set({ [`${j ? "chosen" : "dense"}${i}`]: mib(row[PARTS[i]]) });
      });
    });
    const name = `Linear weights packed in ${held.format} at ${held.bits} bits each`;
    const shrink = perCent(1 - chosen[PARTS[0]] / dense[PARTS[0]]);
    const weights = isPacked ? ` The packed weights shrink by ${shrink}, the sum by ${perCent(1 - sum(chosen) / whole)}.` : "";
    const what = isPacked ? name : held === dense ? "all in FP32" : `values of ${held.format}, stored in FP32`;
    set({
      dense: mib(whole),
      chosen: mib(sum(chosen)),
      says: `${dense.model}, ${what}: ${mib(sum(chosen))}\u00a0MiB instead of ${mib(whole)}\u00a0MiB.${weights || " Nothing is saved."}`,
    });
  };

  const models = [...new Set(rows.map((row) => row.model))];
  const formats = rows.filter((row) => row.model === models[0]);
  const model = choice("Model", [...models, OWN].map((name) => [name, name]), models[0], show);
  const linear = quantity("Linear weights, millions", { value: 6500 }, show);
  const others = quantity("Other parameters, millions", { value: 500 }, show);
  const format = choice(
    "Format",
    formats.map(({ format, bits }) => [format, format, `${bits} bits`]),
    "mxint8",
    show,
  );
  const packed = check("Packed", true, show);
  const written = check("A weight is written out before it is multiplied", true, show);
  show();
});
