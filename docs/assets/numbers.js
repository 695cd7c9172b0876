/* A number says on a first tap what it is, and leads to its evidence on a second. */
(() => {
  let isTouch = false;
  let told = null;
  addEventListener("pointerdown", (event) => { isTouch = event.pointerType === "touch"; }, true);
  addEventListener("click", (event) => {
    const number = event.target.closest?.("a[data-n]");
    if (isTouch && number && number !== told) event.preventDefault();
    told?.classList.remove("told");
    told = isTouch ? number : null;
    told?.classList.add("told");
  }, true);
})();
