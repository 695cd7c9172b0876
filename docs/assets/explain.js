/* What explainers share: the rows of a figure, controls, the texts that follow them, and numbers as
   the pages write them. A figure is complete without this; a script of its own says what follows. */
(() => {
  const make = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const minus = (text) => String(text).replaceAll("-", "−");
  const thousands = (whole) => whole.toLocaleString("en-US", { maximumFractionDigits: 0 });
  const perCent = (share) => `${minus((100 * share).toFixed(1))}\u00a0%`;

  const rows = (figure) => {
    const written = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    const columns = Object.entries(written);
    return columns[0][1].map((_, i) => Object.fromEntries(columns.map(([name, cells]) => [name, cells[i]])));
  };

  const controls = (figure) => {
    const tools = make("div", { class: "tools" });
    (figure.querySelector(":scope > .title") ?? figure.querySelector(".panel > p")).after(tools);
    const named = (text, control, ...more) => {
      tools.append(make("label", {}, make("span", {}, text), control, ...more));
      return control;
    };
    return {
      /* A slider; `said` says its value in words. */
      slider(text, { min, max, value, said = minus }, changed) {
        const output = make("output", { "aria-live": "off" }); // the slider says it
        const input = named(text, make("input", { type: "range", min, max, step: 1, value }), output);
        const tell = () => {
          output.textContent = said(input.valueAsNumber);
          input.setAttribute("aria-valuetext", output.textContent);
        };
        input.addEventListener("input", () => (tell(), changed()));
        tell();
        return {
          get value() {
            return input.valueAsNumber;
          },
          set value(to) {
            input.value = to;
            tell();
          },
          get most() {
            return Number(input.max);
          },
          set most(to) {
            input.max = to;
            input.closest("label").hidden = to === 0; // nothing to choose
            tell();
          },
        };
      },
      /* A list to choose from: [value, text], or [value, text, group]. */
      choice(text, options, value, changed) {
        const select = named(text, make("select"));
        const groups = new Map();
        for (const [each, shown, group] of options) {
          if (group && !groups.has(group)) {
            groups.set(group, make("optgroup", { label: group }));
            select.append(groups.get(group));
          }
          (groups.get(group) ?? select).append(make("option", { value: each }, shown));
        }
        select.value = value;
        select.addEventListener("change", changed);
        return select;
      },
      /* A number of any size. */
      quantity(text, { value, min = 0 }, changed) {
        const input = named(text, make("input", { type: "number", min, step: "any", value }));
        input.addEventListener("input", changed);
        return input;
      },
      check(text, value, changed) {
        const box = named(text, make("input", { type: "checkbox" }));
        box.checked = value;
        box.addEventListener("change", changed);
        return box;
      },
    };
  };

  /* Texts by the name of the field that they stand in. */
  const set = (figure, texts) => {
    for (const [name, text] of Object.entries(texts))
      for (const field of figure.querySelectorAll(`.panel [data-f="${name}"]`))
        if (field.textContent !== String(text)) field.textContent = text;
  };

  /* What the controls are set to stands in the address, which opens the figure as it is. */
  const remember = (figure) => {
    const all = [...figure.querySelectorAll(".tools :is(input, select)")];
    const value = (control) => (control.type === "checkbox" ? Number(control.checked) : control.value);
    const state = () => `#${figure.id}=${all.map((control) => encodeURIComponent(value(control))).join(",")}`;
    const takes = ({ options }, value) => (options ? [...options].some((option) => option.value === value) : !isNaN(value));
    const restore = () => {
      const [id, ...given] = location.hash.slice(1).split(/[=,]/).map(decodeURIComponent);
      if (id !== figure.id || given.length !== all.length || !all.every((control, i) => takes(control, given[i]))) return;
      all.forEach((control, i) => {
        if (control.type === "checkbox") control.checked = given[i] === "1";
        else control.value = given[i];
        for (const event of ["input", "change"]) control.dispatchEvent(new Event(event, { bubbles: true }));
      });
      figure.scrollIntoView();
    };
    restore();
    addEventListener("hashchange", restore);
    let kept = state();
    const keep = () => state() !== kept && history.replaceState(null, "", (kept = state()));
    for (const event of ["input", "change", "click"]) figure.addEventListener(event, keep);
    figure.state = state; // for the link that charts.js copies
  };

  const shared = { make, minus, thousands, perCent };
  globalThis.explain = (name, build) => {
    // a page with two figures runs its script twice
    for (const figure of document.querySelectorAll(`figure[data-explain="${name}"]:not(.live)`)) {
      figure.querySelector(".says")?.setAttribute("aria-live", "polite");
      figure.classList.add("live");
      build({ figure, rows: rows(figure), set: (texts) => set(figure, texts), ...controls(figure), ...shared });
      remember(figure);
    }
  };
})();
