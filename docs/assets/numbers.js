/* A number or test opens its evidence in a card beside it; Escape, or a touch elsewhere, closes it. Without a script it is a link. */
(() => {
  const card = document.createElement("aside");
  if (!("popover" in card)) return;
  card.className = "card";
  card.popover = "auto";
  card.setAttribute("aria-label", "Evidence");
  card.innerHTML = '<iframe title="Evidence"></iframe><button type="button" aria-label="Close">×</button>';
  card.lastChild.onclick = () => card.hidePopover();
  addEventListener("message", ({ source, data }) => source === card.firstChild.contentWindow && data === "close" && card.hidePopover());
  card.addEventListener("toggle", ({ newState }) => document.documentElement.classList.toggle("with-card", newState === "open"));
  let shown = null;
  addEventListener("click", (event) => {
    const link = event.target.closest?.('article a[href*="records/"][href$=".html"]');
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (link === shown && card.matches(":popover-open")) return card.hidePopover();
    shown = link;
    document.body.append(card);
    card.firstChild.src = `${link.href}#${document.body.dataset.mdColorScheme}`;
    card.showPopover({ source: link }); // Tab goes on into the card
    const at = link.getClientRects()[0], { width, height } = card.getBoundingClientRect();
    const below = at.bottom + 8 + height < innerHeight || at.top < height + 8;
    card.style.left = `${Math.max(8, Math.min(at.left, innerWidth - width - 8))}px`;
    card.style.top = `${Math.max(8, below ? Math.min(at.bottom + 8, innerHeight - height - 8) : at.top - height - 8)}px`;
  }, true);
  addEventListener("scroll", () => card.matches(":popover-open") && card.hidePopover(), { passive: true });
})();
