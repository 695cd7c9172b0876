// All that the toy of 4.3b shows, code by code: its script with stubs in the place of a page.
//
//     node every_code.js SCRIPT < {"rows": […], "fields": [[name, class], …]}
//
// A line a code, scale by scale: JSON of its numbers, and of what is marked and chosen.
const fs = require("fs");
const vm = require("vm");

const { rows, fields } = JSON.parse(fs.readFileSync(0, "utf8"));

const element = (name, look) => {
  const classes = new Set(look.split(" "));
  const toggle = (one, on) => (on ? classes.add(one) : classes.delete(one));
  const classList = { toggle, contains: (one) => classes.has(one) };
  return { dataset: { f: name }, className: look, classes, classList, textContent: "", addEventListener() {}, replaceWith() {} };
};
const known = new Map(fields.map(([name, look]) => [name, element(name, look)]));
const [bias, list, sliders] = [element("", ""), { append() {} }, {}];
const figure = { ...element("", ""), querySelectorAll: () => [...known.values()], querySelector: () => bias };
let show;
const stubs = {
  figure,
  rows,
  minus: (text) => String(text).replaceAll("-", "−"),
  make: (_, { class: look = "", "data-f": name = "another" }) => known.set(name, element(name, look)).get(name),
  choice: () => list,
  slider: (name, { value }, changed) => ((show = changed), (sliders[name] = { value })),
  set(texts) {
    for (const [name, text] of Object.entries(texts)) known.get(name).textContent = String(text);
  },
};
vm.runInNewContext(fs.readFileSync(process.argv[2], "utf8"), { explain: (_, build) => build(stubs) });

const text = (name) => known.get(name).textContent;
const ROWS = ["mantissa", "out", "bias", "result"];
const lines = [];
for (let scale = 0; scale < 256; scale += 1)
  for (let mantissa = -128; mantissa < 128; mantissa += 1) {
    [sliders.Mantissa.value, sliders.Scale.value] = [mantissa, scale];
    show();
    const shown = {
      mantissa: text("mantissa"),
      values: ROWS.map((name) => text(`${name}-value`)),
      is_wrong: figure.classes.has("wrong"),
      is_unused: bias.classes.has("unused"),
      chosen: list.value,
    };
    lines.push(JSON.stringify(shown));
  }
process.stdout.write(lines.join("\n"));
