"use strict";
(() => {
  const $ = (q, of = document) => [...of.querySelectorAll(q)];
  const search = document.getElementById("search"), found = document.getElementById("found");
  const packed = JSON.parse(document.getElementById("texts").textContent);

  // Long texts are unpacked when somebody looks at them.
  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };
  const fill = async (box) => {
    const into = box.querySelector("[data-text]");
    if (!into || into.dataset.done) return;
    into.dataset.done = "1";
    try {
      for (const [name, text] of Object.entries(await unpack(packed[into.dataset.text]))) {
        const title = document.createElement("h4"), pre = document.createElement("pre");
        title.textContent = name;
        pre.textContent = text;
        pre.tabIndex = 0;
        into.append(title, pre);
      }
    } catch (e) { into.textContent = "cannot be unpacked: " + e; }
  };
  document.addEventListener("toggle", (e) => { if (e.target.open) fill(e.target); }, true);

  // A link opens what its target lies in.
  const land = () => {
    const at = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!at) return;
    for (let d = at; d; d = d.parentElement) if (d.tagName === "DETAILS") d.open = true;
    at.scrollIntoView();
  };
  addEventListener("hashchange", land);

  const look = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let n = 0;
    for (const row of $("[data-row]")) {
      const text = row.textContent.toLowerCase(), fits = words.every((w) => text.includes(w));
      row.classList.toggle("hidden", !fits);
      n += fits;
    }
    if (words.length) for (const d of $("details")) if (d.querySelector("[data-row]:not(.hidden)")) d.open = true;
    found.textContent = words.length ? n + " found" : "";
  };
  search.addEventListener("input", look);

  for (const b of $("th button")) b.addEventListener("click", () => {
    const th = b.closest("th"), i = [...th.parentElement.children].indexOf(th), body = th.closest("table").tBodies[0];
    const down = th.getAttribute("aria-sort") !== "descending";
    for (const other of th.parentElement.children) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => { const c = row.cells[i]; return c.dataset.v === undefined ? c.textContent : +c.dataset.v; };
    const order = (a, b) => { const x = value(a), y = value(b); return typeof x === "number" ? x - y : x.localeCompare(y); };
    body.append(...[...body.rows].sort((a, b) => (down ? -1 : 1) * order(a, b)));
  });

  const theme = document.getElementById("theme"), root = document.documentElement;
  theme.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  addEventListener("keydown", (e) => {
    if (e.target === search) { if (e.key === "Escape") { search.value = ""; look(); search.blur(); } return; }
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "/") { e.preventDefault(); search.focus(); }
    if (e.key === "t") theme.click();
    if (e.key !== "j" && e.key !== "k") return;
    const all = $("main > section"), at = all.findLastIndex((s) => s.getBoundingClientRect().top < 100);
    const to = all[Math.max(0, Math.min(all.length - 1, at + (e.key === "j" ? 1 : -1)))];
    to.scrollIntoView();
    to.querySelector("h2,h1").focus();
  });
  land();
})();
