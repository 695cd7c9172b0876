/* What any thread of any block copies, at every group size and order of threads. The first state is
   drawn by page.py, whose words are the same. */
explain("tiles", ({ figure, rows, set, slider, choice, thousands }) => {
  const [WARP, WIDTH, HEIGHT, ACROSS] = [32, 340, 124, 8];
  const part = (name) => figure.querySelector(`[data-part=${name}]`);
  const indices = (of) => Array.from({ length: of }, (_, i) => i);

  const place = (row, thread, [down, along]) => {
    const [high, wide, downStride, alongStride] = row.layout.match(/\d+/g).map(Number);
    const m = row.bytes * (downStride ? Math.floor(thread / downStride) % high : 0);
    const k = alongStride ? Math.floor(thread / alongStride) % wide : 0;
    const element = down * row["tile m"] + m;
    const group = along * row["tile k"] + k;
    return { m, k, element, group, byte: element + row.group * group, slot: m + row["tile m"] * k };
  };
  const box = (data, look, x, y, width, height, label = "") =>
    `<g class="${look}" data-${data}><rect x="${x}" y="${y}" width="${width}" height="${height}"/>` +
    `<text class="note" x="${x + width / 2}" y="${y + height / 2 + 4}" text-anchor="middle">${label}</text></g>`;
  const range = (name, from, size) => (size === 1 ? `${name} ${thousands(from)}` : `${name}s ${thousands(from)} … ${thousands(from + size - 1)}`);

  const show = () => {
    const row = rows.find((one) => one["threads run"] === order.value && one.group === groups[size.value]);
    const [m, k, tall] = [row["tile m"], row["tile k"], Math.ceil(row.group / row["tile m"])];
    thread.most = row.threads - 1;
    number.most = tall * ACROSS - 1;
    const [t, n] = [thread.value, number.value];
    const block = [n % tall, Math.floor(n / tall)];
    const own = t - (t % WARP);
    const at = place(row, t, block);
    const held = indices(WARP).map((i) => place(row, i, [0, 0]));
    const [down, across] = [Math.max(...held.map((one) => one.m)) + row.bytes, Math.max(...held.map((one) => one.k)) + 1];
    const [y, x, high, wide] = [HEIGHT / m, WIDTH / k, HEIGHT / tall, WIDTH / ACROSS];
    part("blocks").innerHTML = indices(tall * ACROSS)
      .map((i) => [i, i % tall, Math.floor(i / tall)])
      .map(([i, a, b]) => box(`block=${i}`, i === n ? "added" : "", b * wide, a * high, wide, high, `${a}, ${b}`))
      .join("");
    const warps = indices(row.threads / WARP).map((i) => {
      const first = place(row, WARP * i, [0, 0]);
      return box(`thread=${WARP * i}`, WARP * i === own ? "added" : "", first.k * x, first.m * y, across * x, down * y);
    });
    part("warps").innerHTML = warps.join("") + box(`thread=${t}`, "mark", at.k * x, at.m * y, Math.max(x, 2), Math.max(row.bytes * y, 2));
    set({
      "blocks-title": `blocks, each of ${k} groups (not to scale)`,
      "blocks-note": `green: block (${block.join(", ")}); more follow`,
      "warps-title": `block (${block.join(", ")}): a tile of ${m}\u00a0×\u00a0${k}`,
      "warps-note": `orange: T${t}; green: its warp, T${own} to T${own + WARP - 1}`,
      says:
        `T${t} of block (${block.join(", ")}) copies ${range("value", at.element, row.bytes)} of group ${thousands(at.group)}: ` +
        `${range("byte", at.byte, row.bytes)} of global memory to ${range("slot", at.slot, row.bytes)} of shared memory. ` +
        `One load of its warp wants ${WARP * row.bytes} bytes; the sectors that it touches hold ${thousands(row.fetched)}. ` +
        `Shared memory serves it in ${row.passes} turn${row.passes > 1 ? "s" : ""}.`,
    });
  };

  const start = rows[0];
  const groups = [...new Set(rows.map((row) => row.group))].sort((a, b) => a - b);
  const orders = [...new Set(rows.map((row) => row["threads run"]))];
  const order = choice("Threads run", orders.map((one) => [one, one]), start["threads run"], () => show());
  const size = slider("Group size", { min: 0, max: groups.length - 1, value: groups.indexOf(start.group), said: (i) => String(groups[i]) }, () => show());
  const number = slider("Block", { min: 0, max: ACROSS - 1, value: 0 }, () => show());
  const thread = slider("Thread", { min: 0, max: start.threads - 1, value: 0, said: (t) => `T${t}` }, () => show());

  figure.addEventListener("click", ({ target }) => {
    const { block, thread: first } = target.closest("[data-part] > g")?.dataset ?? {};
    if (block) number.value = block;
    if (first) thread.value = first;
    if (block || first) show();
  });
  figure.explained = { rows, place };
  show();
});
