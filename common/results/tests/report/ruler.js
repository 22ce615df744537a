// Measures the page in every frame, and writes what it finds as lines name=value; the last line of each is done=1.
function measure(frame) {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement;
  const out = [];
  const say = (name, value) => out.push(name + "=" + String(value).replace(/\s+/g, " "));
  const luminance = (rgb) => {
    const part = (c) => (c <= 0.04045 ? c / 12.92 : Math.pow((c + 0.055) / 1.055, 2.4));
    return 0.2126 * part(rgb[0] / 255) + 0.7152 * part(rgb[1] / 255) + 0.0722 * part(rgb[2] / 255);
  };
  const parse = (text) => (text.match(/[\d.]+/g) || [255, 255, 255, 1]).map(Number);
  // The ground of an element: the first one above it that has a colour.
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(view.getComputedStyle(e).backgroundColor);
      if (colour.length < 4 || colour[3] > 0.5) return colour;
    }
    return [255, 255, 255];
  };
  const shown = (e) => e.checkVisibility({ contentVisibilityAuto: true, visibilityProperty: true }) && e.getClientRects().length > 0;

  say("width", view.innerWidth);
  say("scroll", root.scrollWidth);
  say("height", root.scrollHeight);
  say("ground", luminance(ground(page.body)).toFixed(4));
  const inBox = (e) => e.closest(".scroll, pre") !== null;
  // What stands in the page stays inside of its margins, labels of an axis within a few pixels.
  const edge = page.body.getBoundingClientRect().right - parseFloat(view.getComputedStyle(page.body).paddingRight);
  for (const e of page.body.querySelectorAll("*"))
    if (!inBox(e) && shown(e) && e.getBoundingClientRect().right > edge + (e.closest("svg") ? 12 : 1)) say("wide", e.outerHTML.slice(0, 100));

  // Texts: contrast and size as laid out.
  let texts = 0;
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (!node.data.trim() || e.tagName.toLowerCase() === "title" || !shown(e)) continue;
    texts += 1;
    const style = view.getComputedStyle(e);
    const a = luminance(parse(e.closest("svg") ? style.fill : style.color)), b = luminance(ground(e));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) say("faint", contrast.toFixed(2) + " " + node.data.slice(0, 60));
    // An SVG with a viewBox shrinks its texts where it has not its own width.
    const svg = e.closest("svg[viewBox]");
    const factor = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    if (parseFloat(style.fontSize) * factor < 9.5) say("small", node.data.slice(0, 60));
  }
  say("texts", texts);

  // Numbers: each stands on one line.
  let numbers = 0;
  for (const e of page.querySelectorAll("td.n, .nb, svg text")) {
    if (!shown(e) || !e.textContent.trim()) continue;
    numbers += 1;
    const range = page.createRange();
    range.selectNodeContents(e);
    if (e.tagName.toLowerCase() !== "text" && range.getBoundingClientRect().height > 1.9 * parseFloat(view.getComputedStyle(e).fontSize)) say("wraps", e.textContent.slice(0, 60));
  }
  say("numbers", numbers);

  for (const svg of page.querySelectorAll("svg")) {
    if (svg.parentElement.closest("svg") || svg.getAttribute("aria-hidden") === "true") continue;
    const title = svg.querySelector(":scope > title");
    if (svg.getAttribute("role") !== "img" || !title || !title.textContent.trim()) say("unnamed", svg.outerHTML.slice(0, 100));
  }

  const details = [...page.querySelectorAll("details")];
  say("details", details.length);
  say("open", details.filter((d) => shown(d.lastElementChild)).length);
  for (const table of page.querySelectorAll("table, pre"))
    if (!shown(table)) say("hidden", table.outerHTML.slice(0, 100));
  say("done", 1);
  return out.join("\n") + "\n";
}
window.addEventListener("load", () => {
  document.getElementById("found").textContent = [...document.querySelectorAll("iframe")].map(measure).join("");
});
