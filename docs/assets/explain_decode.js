/* Any code of MXINT8 through the coursework's dequantize loop, bit by bit. The same steps as
   madl/execution/decode_panel.py; a test compares all codes with what torch computes. */
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
  const definition = (mantissa, scale) => (scale === 255 ? NaN : value(bitsOf((mantissa / 64) * 2 ** (scale - 127))));

  explain("decode", ({ figure, rows, set, slider, choice, make, minus }) => {
    const shown = (number) => {
      if (Number.isNaN(number)) return "NaN";
      if (!Number.isFinite(number)) return number > 0 ? "∞" : "−∞";
      const size = Math.abs(number);
      const plain = !size || (size >= 1e-4 && size < 1e6);
      const text = plain ? (Object.is(number, -0) ? "-0" : String(Number(number.toPrecision(6)))) : number.toExponential(3);
      return minus(text.replace("e+", "e"));
    };
    const byte = (number) => (number & 0xff).toString(2).padStart(8, "0");
    const grouped = (bits) => bits.toString(2).padStart(16, "0").replace(/^(.)(.{8})(.*)/, "$1 $2 $3");

    const show = () => {
      const [mantissa, scale] = [m.value, s.value];
      const made = steps(mantissa, scale);
      const meant = definition(mantissa, scale);
      const result = value(made.result);
      const right = result === meant || (Number.isNaN(result) && Number.isNaN(meant));
      const where = mantissa === -128 ? "mantissa −128" : `scale ${scale}`;
      const why = right ? "" : rows.find((row) => row.where === where)?.because;
      const taken = made.needsNone
        ? `set, so the loop takes out as it is: ${shown(result)}`
        : `clear, so the loop takes out − bias: ${shown(value(made.out))} − ${shown(value(made.bias))} = ${shown(result)}`;
      const verdict = right ? "as it should be" : `where it should be ${shown(meant)}${why ? `: ${why}` : ""}`;
      for (let i = 0; i < 8; i += 1) {
        set({ [`m${i}`]: (mantissa >> i) & 1, [`s${i}`]: (scale >> i) & 1 });
      }
      for (const bit of bits) bit.ariaPressed = String(bit.textContent === "1");
      figure.classList.toggle("wrong", !right);
      set({
        mantissa: minus(mantissa),
        scale,
        magnitude: byte(made.magnitude),
        absolute: made.magnitude,
        one: Number(made.needsNone),
        needed: made.needsNone,
        outbits: grouped(made.out),
        out: shown(value(made.out)),
        biasbits: grouped(made.bias),
        bias: shown(value(made.bias)),
        rule: made.needsNone ? "out" : "out - bias",
        resultbits: grouped(made.result),
        result: shown(result),
        formula: scale === 255 ? "a scale that means NaN" : `${minus(mantissa)} / 64 × 2^(${scale} − 127)`,
        meantbits: Number.isNaN(meant) ? "NaN" : grouped(bitsOf(meant)),
        meant: shown(meant),
        says: minus(`Mantissa ${mantissa}, scale ${scale}: bit 6 is ${taken}, ${verdict}.`),
      });
    };

    const start = rows[0];
    const pick = choice(
      "Begin with",
      rows.map((row, i) => [i, minus(`mantissa ${row.mantissa}, scale ${row.scale}`), row.where === "right" ? "right" : "wrong"]),
      0,
      () => {
        const row = rows[pick.value];
        [m.value, s.value] = [row.mantissa, row.scale];
        show();
      },
    );
    const m = slider("Mantissa", { min: -128, max: 127, value: start.mantissa }, show);
    const s = slider("Scale", { min: 0, max: 255, value: start.scale }, show);

    const bits = [...figure.querySelectorAll(".bit")].map((cell) => {
      const name = cell.dataset.f;
      const place = Number(name[1]);
      const of = name[0] === "m" ? "mantissa" : "scale";
      const button = make("button", { type: "button", class: "bit", "data-f": name, "aria-label": `bit ${place} of the ${of}` }, cell.textContent);
      button.addEventListener("click", () => {
        const slide = of === "mantissa" ? m : s;
        const flipped = (slide.value & 0xff) ^ (1 << place);
        slide.value = of === "mantissa" && flipped > 127 ? flipped - 256 : flipped;
        show();
      });
      cell.replaceWith(button);
      return button;
    });
    figure.explained = { steps, definition, bitsOf };
    show();
  });
})();
