/* The index of the search weighs as much as a page: the theme's request for it waits until somebody
   searches, or follows a find, whose words are marked. */
(() => {
  if (new URL(location).searchParams.has("h")) return;
  const { open, send } = XMLHttpRequest.prototype;
  function sendLater() {
    const begin = ({ target }) => {
      if (!target.closest?.('[data-md-component="search"]')) return;
      removeEventListener("focusin", begin);
      send.call(this);
    };
    addEventListener("focusin", begin);
    begin({ target: document.activeElement });
  }
  XMLHttpRequest.prototype.open = function (method, url, ...rest) {
    if (String(url).endsWith("search/search_index.json")) this.send = sendLater;
    open.call(this, method, url, ...rest);
  };
})();
