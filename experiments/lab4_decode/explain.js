/* Any code of MXINT8 through the coursework's dequantize loop, bit by bit; a test reads the numbers
   that are shown of every code. */
(() => {
  const view = new DataView(new ArrayBuffer(4));
  const value = (bits) => (view.setUint32(0, (bits << 16) >>> 0), view.getFloat32(0));
  const bitsOf = (number) => (view.setFloat32(0, number), view.getUint32(0) >>> 16);

  const steps = (mantissa, scale) => {
    const magnitude = Math.abs(mantissa);
    const bias = (mantissa < 0 ? 1 << 15 : 0) | (scale << 7);
    const out = bias | ((magnitude & 0x3f) << 1);
    const needsNone = (magnitude & 0x40) !== 0;
    return { magnitude, needsNone, out, bias, result: needsNone ? out : bitsOf(value(out) - value(bias)) };
  };
  const definition = (mantissa, scale) => (scale === 255 ? NaN : (mantissa / 64) * 2 ** (scale - 127));
  const raised = (power) => [...String(power)].map((digit) => (digit === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])).join("");

  explain("decode", ({ figure, rows, set, slider, choice, make, minus }) => {
    /* Exactly: as a decimal where that is short, else in steps of the mantissa. */
    const shown = (number) => {
      const size = Math.abs(number);
      const sign = number < 0 || Object.is(number, -0) ? "−" : "";
      if (Number.isNaN(number)) return "NaN";
      if (size === Infinity) return `${sign}∞`;
      if (Number.isInteger(size * 64) && size < 1e6) return `${sign}${size}`;
      const power = s.value - 133;
      const steps = size / 2 ** power;
      return `${sign}${steps === 1 ? "" : `${steps}·`}2${raised(power)}`;
    };
    const cells = new Map([...figure.querySelectorAll("[data-f]")].map((cell) => [cell.dataset.f, cell]));
    /* The cells of a BF16; `gone` where the mantissa has no one and BF16 reads one. */
    const word = (name, bits, hasOne) => {
      const exponent = (bits >> 7) & 0xff;
      const implied = exponent > 0 && exponent < 255 ? 1 : exponent ? "–" : 0;
      const fraction = (bits & 0x7f).toString(2).padStart(7, "0");
      set({ [`${name}-s`]: bits >> 15, [`${name}-e`]: exponent, [`${name}-l`]: implied, [`${name}-value`]: shown(value(bits)) });
      [...fraction].forEach((bit, i) => set({ [`${name}-${i}`]: bit }));
      cells.get(`${name}-l`).classList.toggle("gone", implied === 1 && !hasOne);
    };

    const show = () => {
      const [mantissa, scale] = [m.value, s.value];
      const made = steps(mantissa, scale);
      const [out, bias, result, meant] = [value(made.out), value(made.bias), value(made.result), definition(mantissa, scale)];
      const right = Object.is(result + 0, meant + 0);
      const where = mantissa === -128 ? "mantissa −128" : `scale ${scale}`;
      const why = right ? "" : rows.find((row) => row.where === where)?.because;
      const magnitude = made.magnitude.toString(2).padStart(8, "0");
      set({ mantissa: minus(mantissa), "mantissa-s": Number(mantissa < 0), "mantissa-e": magnitude[0], "mantissa-l": magnitude[1] });
      [...magnitude.slice(2)].forEach((bit, i) => set({ [`mantissa-${i}`]: bit }));
      word("out", made.out, made.needsNone);
      word("bias", made.bias, made.needsNone);
      word("result", made.result, true);
      const one = bias < 0 ? `(${shown(bias)})` : shown(bias);
      const said = () => {
        if (!right) return `The loop gives ${shown(result)}, but the code means ${shown(meant)}: ${why}.`;
        if (scale === 255) return "This scale means NaN, and the loop gives it.";
        if (scale === 0) return "Under exponent 0 the implied bit is 0: out and bias are 0, and so is what the code means.";
        if (made.needsNone) return `Bit six is 1, as BF16 reads it: out is ${shown(out)}, what the code means.`;
        const taken = `${shown(out)} − ${one} = ${shown(result)}`;
        return `Bit six is 0, yet BF16 reads a one there: out is ${shown(out)}. Without that one, ${taken}, what the code means.`;
      };
      set({
        "mantissa-value": shown(meant),
        rule: made.needsNone ? "out" : "out - bias",
        says: said(),
      });
      figure.querySelector("tr.bias").classList.toggle("unused", made.needsNone);
      figure.classList.toggle("wrong", !right);
      for (const cell of cells.values()) cell.classList.toggle("on", cell.textContent === "1" && !cell.classList.contains("exponent"));
      for (const button of buttons) button.ariaPressed = String(button.textContent === "1");
      const listed = rows.findIndex((row) => row.mantissa === mantissa && row.scale === scale);
      pick.value = listed < 0 ? "" : listed;
    };

    const start = rows[0];
    const pick = choice(
      "Code",
      rows.map((row, i) => [i, minus(`${row.mantissa}, scale ${row.scale}`), row.where ? "the loop is wrong" : "the loop is right"]),
      0,
      () => {
        const row = rows[pick.value];
        if (row) [m.value, s.value] = [row.mantissa, row.scale];
        show();
      },
    );
    pick.append(make("option", { value: "", hidden: "" }, "another")); // than those listed
    const m = slider("Mantissa", { min: -128, max: 127, value: start.mantissa }, show);
    const s = slider("Scale", { min: 0, max: 255, value: start.scale }, show);

    /* A bit of the mantissa is a button: its sign, or a bit of its magnitude. */
    const flip = (bit) => {
      const magnitude = Math.abs(m.value) % 128;
      const [size, isNegative] = bit === "sign" ? [magnitude, m.value >= 0] : [magnitude ^ (1 << bit), m.value < 0];
      m.value = isNegative ? -size : size;
      show();
    };
    const places = ["s", "l", 0, 1, 2, 3, 4, 5]; // bit seven is that of −128 alone
    const buttons = places.map((place, i) => {
      const [cell, bit] = [cells.get(`mantissa-${place}`), i ? 7 - i : "sign"];
      const name = i ? `bit ${bit} of the magnitude` : "sign of the mantissa";
      const button = make("button", { type: "button", class: cell.className, "data-f": cell.dataset.f, title: name }, cell.textContent);
      button.addEventListener("click", () => flip(bit));
      cell.replaceWith(button);
      cells.set(cell.dataset.f, button);
      return button;
    });
    show();
  });
})();
