/* A number says on a first tap what it is, and leads to its evidence on a second. */
(() => {
  let told = null;
  addEventListener("click", (event) => {
    const isTap = event.pointerType === "touch"; // a key has none
    const number = isTap ? event.target.closest?.("a.n") ?? null : null;
    if (number && number !== told) event.preventDefault();
    told?.classList.remove("told");
    told = number;
    told?.classList.add("told");
  }, true);
})();
