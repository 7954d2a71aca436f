// Before anything is painted: nobody with a dark theme sees a white page first. A file of its own, as the hub allows no script in a page.
(() => {
  const kept = localStorage.getItem('tensonde.theme');
  document.documentElement.dataset.theme = kept ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
})();
