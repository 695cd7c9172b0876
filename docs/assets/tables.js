/* What a table gains by a script: columns that sort (`.sortable`); a long one (`.explorer`) a filter, too,
   and all but its first rows folded. Without it, the table is complete. */
(() => {
  const OPEN = 10; // rows
  const collator = new Intl.Collator("en", { numeric: true });

  const make = (tag, attributes, text = "") => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    return made;
  };
  const read = (row, column) => row.cells[column].textContent.trim();
  const number = (text) => Number.parseFloat(text.replace("−", "-").replaceAll(",", ""));

  const enhance = (box) => {
    const table = box.querySelector("table");
    if (!table || box.dataset.live) return;
    box.dataset.live = "yes";
    const long = box.matches(".explorer");
    const [head, body] = [table.tHead.rows[0], table.tBodies[0]];
    const filter = make("input", { type: "search", placeholder: "Filter, for example mx or 8", "aria-label": "Filter the rows" });
    const more = make("button", { type: "button" });
    const said = make("span", { "aria-live": "polite" });
    let all = false;

    const show = () => {
      const words = filter.value.toLowerCase().split(/\s+/);
      const rows = [...body.rows];
      const fits = rows.filter((row) => words.every((word) => row.textContent.toLowerCase().includes(word)));
      for (const row of rows) row.hidden = true;
      for (const row of all ? fits : fits.slice(0, OPEN)) row.hidden = false;
      said.textContent = `${fits.length} of ${rows.length} rows fit`;
      more.hidden = fits.length <= OPEN;
      more.textContent = all ? `Show ${OPEN}` : `Show all ${fits.length}`;
    };

    const sort = (column) => {
      const cell = head.cells[column];
      const down = cell.ariaSort === "ascending";
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows];
      const numeric = rows.every((row) => !Number.isNaN(number(read(row, column))));
      const compare = (a, b) => (numeric && number(a) - number(b)) || collator.compare(a, b);
      rows.sort((a, b) => (down ? -1 : 1) * compare(read(a, column), read(b, column)));
      body.append(...rows);
      if (long) show();
    };

    [...head.cells].forEach((cell, column) => {
      const button = make("button", { type: "button", title: "Sort by this column" }, cell.textContent);
      button.addEventListener("click", () => sort(column));
      cell.replaceChildren(button);
    });
    if (!long) return;
    filter.addEventListener("input", show);
    more.addEventListener("click", () => {
      all = !all;
      show();
    });
    const tools = make("p", { class: "tools" });
    tools.append(filter, " ", said);
    box.prepend(tools);
    box.append(more);
    show();
  };

  /* What is wider than its box is scrolled by the keyboard, too. */
  const boxes = ".md-typeset__scrollwrap, .register, .drawing .panel, .drawing .pan";
  const watch = new ResizeObserver((seen) => {
    for (const { target: box } of seen) {
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  });
  const start = () => {
    document.querySelectorAll(".explorer, .sortable").forEach(enhance);
    document.querySelectorAll(boxes).forEach((box) => watch.observe(box));
  };
  start();
})();
