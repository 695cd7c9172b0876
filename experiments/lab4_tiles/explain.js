/* Which values, bytes and banks are a thread's, for any thread of any block of any mapping. The first
   state is drawn by page.py, whose words are the same. */
explain("tiles", ({ figure, rows, set, slider, choice, thousands }) => {
  const [WARP, SECTOR, BANKS, BANK] = [32, 32, 32, 4];
  const [WIDTH, VIEW, HIGH, TILE, TALL, LANES, LANE, ACROSS] = [380, 20, 44, 94, 128, 250, 22, 8];
  const svg = figure.querySelector("svg");
  const lanesOf = (of) => Array.from({ length: of }, (_, i) => i);
  const range = (from, size) => lanesOf(size).map((i) => from + i);

  const place = (row, thread, [y, x]) => {
    const [down, along, downStride, alongStride] = row.layout.match(/\d+/g).map(Number);
    const m = row.bytes * (downStride ? Math.floor(thread / downStride) % down : 0);
    const k = alongStride ? Math.floor(thread / alongStride) % along : 0;
    const element = y * row["tile m"] + m;
    const group = x * row["tile k"] + k;
    return { m, k, element, group, byte: element + row.group * group, slot: m + row["tile m"] * k };
  };
  const warpOf = (row, warp, block) => lanesOf(WARP).map((lane) => place(row, warp * WARP + lane, block));

  const each = (from, size, step) => [...new Set(range(from, size).map((byte) => Math.floor(byte / step)))];
  const sectors = (row, warp) => [...new Set(warp.flatMap(({ byte }) => each(byte, row.bytes, SECTOR)))].sort((a, b) => a - b);
  /* How often shared memory is asked: as often as one bank is wanted for different words. */
  const passes = (row, warp) => {
    const part = (WARP * BANK) / Math.max(row.bytes, BANK);
    let total = 0;
    for (let first = 0; first < WARP; first += part) {
      const words = new Set(warp.slice(first, first + part).flatMap(({ slot }) => each(slot, row.bytes, BANK)));
      const wanted = Array(BANKS).fill(0);
      for (const word of words) wanted[word % BANKS] += 1;
      total += Math.max(...wanted);
    }
    return total;
  };

  const box = (x, y, width, height, isOn) =>
    `<g class="${isOn ? "added" : "op"}"><rect x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${width.toFixed(1)}" height="${height.toFixed(1)}"/></g>`;
  const text = (words, y, name) => `<text class="note" x="0" y="${y}"${name ? ` data-f="${name}"` : ""}>${words}</text>`;
  const part = (name, boxes) => `<g data-part="${name}">${boxes.join("")}</g>`;
  const drawn = (row, t, block, [tall, warps]) => {
    const [high, wide, down, step] = [HIGH / tall, WIDTH / row["tile k"], TALL / row["tile m"], WIDTH / ACROSS];
    const from = Math.min(Math.max(block[1] - ACROSS + 1, 0), block[1]);
    const blocks = lanesOf(tall * ACROSS).map((i) => [Math.floor(i / ACROSS), i % ACROSS]);
    const own = Math.floor(t / WARP);
    const warp = warpOf(row, own, block);
    const touched = sectors(row, warp);
    const at = place(row, t, block);
    return [
      text(`all mantissas: a column is a group${from ? ` (from ${thousands(from * row["tile k"])})` : ""}`, 12),
      part("blocks", blocks.map(([i, j]) => box(j * step, VIEW + i * high, step, high, i === block[0] && j + from === block[1]))),
      text(`block (${block.join(", ")}): ${row["tile m"]} × ${row["tile k"]}; green: warp ${own}`, 86, "block"),
      part("warps", lanesOf(warps).map((i) => {
        const held = warpOf(row, i, [0, 0]);
        const [ms, ks] = [held.map(({ m }) => m), held.map(({ k }) => k)];
        const [m, k] = [Math.min(...ms), Math.min(...ks)];
        return box(k * wide, TILE + m * down, (Math.max(...ks) - k + 1) * wide, (Math.max(...ms) - m + row.bytes) * down, i === own);
      })),
      `<rect class="mark" x="${at.k * wide}" y="${TILE + at.m * down}" width="${Math.max(wide, 2)}" height="${Math.max(row.bytes * down, 2)}"/>`,
      text(`warp ${own}, thread by thread; a shade a sector`, 242, "lanes"),
      part("lanes", warp.map(({ byte }, i) => box((i * WIDTH) / WARP, LANES, WIDTH / WARP, LANE, touched.indexOf(Math.floor(byte / SECTOR)) % 2 === 0))),
      `<rect class="mark" x="${((t % WARP) * WIDTH) / WARP}" y="${LANES}" width="${WIDTH / WARP}" height="${LANE}"/>`,
    ].join("");
  };

  let row = rows[0];
  const show = () => {
    const [t, block, size] = [thread.value, [down.value, along.value], row.bytes];
    const at = place(row, t, block);
    const warp = warpOf(row, Math.floor(t / WARP), block);
    svg.innerHTML = drawn(row, t, block, [down.most + 1, row.threads / WARP]);
    const bytes = (from) => (size === 1 ? `byte ${from}` : `bytes ${from} … ${from + size - 1}`);
    const last = size === 1 ? "" : ` … ${at.element + size - 1}`;
    const elements = `value${last && "s"} ${at.element}${last} of group ${at.group}`;
    const banks = each(at.slot, size, BANK).map((word) => word % BANKS);
    const load = `${WARP * size} bytes of ${thousands(sectors(row, warp).length * SECTOR)} fetched`;
    set({
      warp: `T${t}: warp ${Math.floor(t / WARP)}, lane ${t % WARP}`,
      elements,
      read: `${bytes(at.byte)}, sector ${each(at.byte, size, SECTOR).join(" and ")}`,
      shared: `${bytes(at.slot)}, bank ${banks.sort((a, b) => a - b).join(" and ")}`,
      load,
      passes: passes(row, warp),
      says: `${row.kernel}, groups of ${row.group}: T${t} of block (${block.join(", ")}) copies ${elements}. One load of its warp uses ${load}.`,
    });
  };
  const pick = () => {
    row = rows.find((one) => one.kernel === kernel.value && one.group === Number(group.value));
    thread.most = row.threads - 1;
    down.most = Math.ceil(row.group / row["tile m"]) - 1;
    along.most = row.groups / row["tile k"] - 1;
    show();
  };

  const listed = (name, order) => [...new Set(rows.map((one) => one[name]))].sort(order).map((one) => [one, String(one)]);
  const kernel = choice("Mapping", listed("kernel", () => 0), row.kernel, () => pick());
  const group = choice("Group", listed("group", (a, b) => a - b), row.group, () => pick());
  const thread = slider("Thread", { min: 0, max: row.threads - 1, value: 0, said: (t) => `T${t}` }, show);
  const down = slider("Block, down", { min: 0, max: 0, value: 0 }, show);
  const along = slider("Block, along", { min: 0, max: 0, value: 0 }, show);

  /* A thread or a block under the pointer. */
  svg.addEventListener("pointerdown", (event) => {
    const frame = svg.getBoundingClientRect();
    const x = ((event.clientX - frame.left) * WIDTH) / frame.width;
    const y = ((event.clientY - frame.top) * WIDTH) / frame.width;
    const share = (at, from, of) => Math.min(Math.max((at - from) / of, 0), 1 - 1e-9);
    if (y >= VIEW && y < VIEW + HIGH) {
      const from = Math.max(along.value - ACROSS + 1, 0);
      [down.value, along.value] = [Math.floor(share(y, VIEW, HIGH) * (down.most + 1)), from + Math.floor(share(x, 0, WIDTH) * ACROSS)];
    } else if (y >= TILE && y < TILE + TALL) {
      const [, , downStride, alongStride] = row.layout.match(/\d+/g).map(Number);
      const m = Math.floor((share(y, TILE, TALL) * row["tile m"]) / row.bytes);
      thread.value = m * downStride + Math.floor(share(x, 0, WIDTH) * row["tile k"]) * alongStride;
    } else if (y >= LANES) thread.value = Math.floor(thread.value / WARP) * WARP + Math.floor(share(x, 0, WIDTH) * WARP);
    else return;
    show();
  });

  figure.explained = { rows, place, sectors, passes, warpOf };
  pick();
});
