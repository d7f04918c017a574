// Sets the chosen theme before the first paint. A script of its own, because the pages allow no inline ones.
(function () {
  try {
    const chosen = localStorage.getItem("steelyard.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage is forbidden: the theme of the system it is.
  }
})();
