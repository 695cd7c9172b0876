/* Which elements, bytes and banks are a thread's, for any thread of any block of any mapping. The
   drawings are those of madl/execution/tile_panels.py, and so are the words. */
explain("tiles", ({ figure, rows, set, slider, choice }) => {
  const [WARP, SECTOR, BANKS, BANK] = [32, 32, 32, 4];
  const SVG = "http://www.w3.org/2000/svg";
  const first = rows.filter((row) => row.warp === 0); // of every mapping and group size
  const panel = figure.querySelector(".panel");
  const drawn = new Map();
  for (const svg of figure.querySelectorAll("svg")) drawn.set(svg.getAttribute("aria-label"), svg);
  const titleOf = (row) => `${row.kernel}, groups of ${row.group}: tiles of ${row["tile m"]} × ${row["tile k"]}`;

  const layout = (row) => row.layout.match(/\d+/g).map(Number);
  const place = (row, thread, [y, x]) => {
    const [down, along, downStride, alongStride] = layout(row);
    const m = row.bytes * (downStride ? Math.floor(thread / downStride) % down : 0);
    const k = alongStride ? Math.floor(thread / alongStride) % along : 0;
    const element = y * row["tile m"] + m;
    const group = x * row["tile k"] + k;
    return { m, k, element, group, byte: element + row.group * group, slot: m + row["tile m"] * k };
  };

  const each = (from, size, step) => [...new Set(Array.from({ length: size }, (_, i) => Math.floor((from + i) / step)))];
  const bytes = (from, size) => (size === 1 ? `byte ${from}` : `bytes ${from} … ${from + size - 1}`);
  const read = (from, size) => `${bytes(from, size)}, sector ${each(from, size, SECTOR).join(" and ")}`;
  const banked = (slot, size) => {
    const banks = each(slot, size, BANK).map((word) => word % BANKS);
    return `${bytes(slot, size)}, bank ${banks.sort((a, b) => a - b).join(" and ")}`;
  };

  let row = first.find((one) => titleOf(one) === panel.querySelector("p").textContent);
  let svg = drawn.get(titleOf(row));
  const mark = document.createElementNS(SVG, "rect");
  mark.setAttribute("class", "mark");

  const look = (part, isOn) => {
    [...svg.querySelectorAll(`[data-part="${part}"] > g`)].forEach((box, i) => box.setAttribute("class", isOn(i) ? "added" : "op"));
  };

  const show = () => {
    const [t, block, size] = [thread.value, [down.value, along.value], row.bytes];
    const at = place(row, t, block);
    const [left, top, width, height] = svg.dataset.tile.split(" ").map(Number);
    const [wide, high] = [width / row["tile k"], height / row["tile m"]];
    const box = { x: left + at.k * wide, y: top + at.m * high, width: Math.max(wide, 2), height: Math.max(size * high, 2) };
    for (const [name, value] of Object.entries(box)) mark.setAttribute(name, value);
    svg.append(mark);

    const warp = Math.floor(t / WARP);
    const across = svg.querySelectorAll('[data-part="blocks"] > g').length / (down.most + 1);
    look("blocks", (i) => i === block[0] * across + block[1] && block[1] < across);
    look("warps", (i) => i === warp);
    look("lanes", (i) => Math.floor(place(row, warp * WARP + i, block).byte / SECTOR) % 2 === 0);
    svg.querySelectorAll('[data-part="lanes"] > g').forEach((lane, i) => {
      const one = place(row, warp * WARP + i, block);
      lane.firstChild.textContent = `T${warp * WARP + i}: ${bytes(one.byte, size)} of global memory; ${banked(one.slot, size)} of shared memory`;
      lane.querySelector("rect").classList.toggle("mark", i === t % WARP);
      lane.querySelector("text")?.toggleAttribute("hidden", warp > 0); // it names the first warp's
    });
    const shownAt = svg.querySelector('[data-part="blocks"]').children[block[0] * across + Math.min(block[1], across - 1)].querySelector("rect");
    const [x, y, w, h] = ["x", "y", "width", "height"].map((name) => Number(shownAt.getAttribute(name)));
    const wire = `M${x} ${y + h}L${left} ${top}M${x + w} ${y + h}L${left + width} ${top}`;
    svg.querySelector("path.wire").setAttribute("d", block[1] < across ? wire : "");

    const last = size === 1 ? "" : ` … ${at.element + size - 1}`;
    const elements = `element${last && "s"} ${at.element}${last} of group ${at.group}`;
    set({
      block: `block (${block.join(", ")}): ${row["tile m"]} × ${row["tile k"]}`,
      lanes: `warp ${warp}: T${warp * WARP} … T${warp * WARP + WARP - 1}; point at a thread`,
      elements,
      read: read(at.byte, size),
      written: read(2 * at.byte, 2 * size),
      shared: banked(at.slot, size),
      warp: `warp ${warp}, lane ${t % WARP}`,
      says: `${row.kernel}, groups of ${row.group}: T${t} of block (${block.join(", ")}) holds ${elements}, ${bytes(at.byte, size)} of global memory, ${banked(at.slot, size)} of shared memory.`,
    });
  };

  const limit = () => {
    thread.most = row.threads - 1;
    down.most = Math.ceil(row.group / row["tile m"]) - 1;
    along.most = row.groups / row["tile k"] - 1;
  };
  const pick = () => {
    row = first.find((one) => one.kernel === kernel.value && one.group === Number(group.value));
    const next = drawn.get(titleOf(row));
    panel.querySelector("svg").replaceWith(next);
    panel.querySelector("p").textContent = titleOf(row);
    svg = next;
    limit();
    show();
  };

  const listed = (name) => [...new Set(first.map((one) => one[name]))].map((one) => [one, String(one)]);
  const kernel = choice("Mapping", listed("kernel"), row.kernel, pick);
  const group = choice("Group", listed("group"), row.group, pick);
  const thread = slider("Thread", { min: 0, max: row.threads - 1, value: 0, said: (t) => `T${t}` }, show);
  const down = slider("Block, down", { min: 0, max: 0, value: 0 }, show);
  const along = slider("Block, along", { min: 0, max: 0, value: 0 }, show);
  limit();

  /* A thread or a block under the pointer. */
  const point = (event, isTap) => {
    const target = event.target.closest?.("[data-part] > g");
    const part = target?.parentNode.dataset.part;
    if (part === "blocks" && isTap) {
      const i = [...target.parentNode.children].indexOf(target);
      const across = target.parentNode.children.length / (down.most + 1);
      [down.value, along.value] = [Math.floor(i / across), i % across];
    } else if (part === "lanes") {
      thread.value = Math.floor(thread.value / WARP) * WARP + [...target.parentNode.children].indexOf(target);
    } else if (part === "warps" || event.target === mark) {
      const frame = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / frame.width;
      const [left, top, width, height] = svg.dataset.tile.split(" ").map(Number);
      const share = (at, from, of) => Math.min(Math.max((at - from) / of, 0), 1 - 1e-9);
      const k = Math.floor(share((event.clientX - frame.left) * scale, left, width) * row["tile k"]);
      const m = Math.floor(share((event.clientY - frame.top) * scale, top, height) * row["tile m"]);
      const [, , downStride, alongStride] = layout(row);
      thread.value = Math.floor(m / row.bytes) * downStride + k * alongStride;
    } else return;
    show();
  };
  panel.addEventListener("pointermove", (event) => event.pointerType === "mouse" && point(event, false));
  panel.addEventListener("pointerdown", (event) => point(event, true));

  figure.explained = { first, place };
  show();
});
