/* A block of a layer's input in which one value grows, in every format: all of it was measured. */
explain("block", ({ figure, rows, set, slider }) => {
  const factors = [...new Set(rows.map((row) => row.factor))];
  const parts = [...figure.querySelectorAll(".block")];
  const isDead = (row) => row.rounded === 0 && row.value !== 0;
  const show = () => {
    const dead = new Map();
    for (const part of parts) {
      const own = rows.filter((row) => row.format === part.dataset.format && row.factor === factors[at.value]);
      const middle = part.querySelector("svg").viewBox.baseVal.height / 2;
      const sizes = own.map((row) => Math.abs(row.value)).sort((a, b) => b - a);
      const most = sizes[1]; // the largest is the one that grows
      own.forEach((row, i) => {
        const bars = { was: row.value, bar: row.rounded };
        for (const [look, value] of Object.entries(bars)) {
          const high = Math.min(Math.abs(value) / most, 1) * (middle - 2);
          const bar = part.querySelectorAll(`.${look}`)[i];
          bar.setAttribute("y", value > 0 ? middle - high : middle);
          bar.setAttribute("height", high);
        }
        part.querySelectorAll(".at")[i].classList.toggle("dead", isDead(row));
      });
      const count = own.filter(isDead).length;
      dead.set(part.dataset.format, count);
      set({ [`dead ${part.dataset.format}`]: `${count} of ${own.length} become zero` });
    }
    const order = [...dead].sort((a, b) => b[1] - a[1]);
    const [[worst, most], [best, least]] = [order[0], order.reduce((a, b) => (b[1] < a[1] ? b : a))];
    set({ says: `${worst} loses ${most} of the neighbours, ${best} ${least}.` });
  };
  const at = slider("One value", { min: 0, max: factors.length - 1, value: 6, said: (i) => `${Math.round(factors[i])} × the largest` }, show);
  show();
});
