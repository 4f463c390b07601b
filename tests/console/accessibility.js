// Says what is wrong with a page as a browser shows it: `(least contrast) => sentences`.
(least) => {
  const problems = [];
  const shown = (each) => each.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && each.getClientRects().length;
  const named = (each) => each.textContent.trim().slice(0, 40) || each.outerHTML.slice(0, 80);

  // Names: of everything that can be used, and of everything that stands for a number or a picture.
  for (const each of document.querySelectorAll("input:not([type=hidden]), button, a, textarea, select, progress, summary, [role=img]")) {
    if (!shown(each)) continue;
    const label = [...(each.labels || [])].map((one) => one.textContent).join(" ").trim();
    const by = (each.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent || "").join("");
    const own = each.matches("input, textarea, progress") ? "" : each.textContent.trim();
    if (!(label || by || each.ariaLabel || own)) problems.push(`no name: ${named(each)}`);
  }
  for (const each of document.querySelectorAll("table")) {
    if (shown(each) && each.tHead && [...each.tHead.rows[0].cells].some((cell) => !cell.textContent.trim())) problems.push("a column without a name");
  }
  if (document.querySelectorAll("h1").length !== 1) problems.push("not one heading of the page");
  if (!document.title || !document.documentElement.lang) problems.push("no title or language");
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  if (new Set(ids).size !== ids.length) problems.push("two elements have one id");

  // Contrast, of texts as they are blended with what is behind them.
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (front, back) => front.slice(0, 3).map((part, at) => part * front[3] + back[at] * (1 - front[3])).concat(1);
  const luminance = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const behind = (each) => {
    const layers = [];
    for (let at = each; at; at = at.parentElement) {
      const box = at.matches("g.broker") && at.querySelector("rect");
      layers.push(rgba(box ? getComputedStyle(box).fill : getComputedStyle(at).backgroundColor));
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const opacity = (each) => {
    let product = 1;
    for (let at = each; at; at = at.parentElement) product *= parseFloat(getComputedStyle(at).opacity);
    return product;
  };
  const check = (each, text, pseudo) => {
    const style = getComputedStyle(each, pseudo);
    const front = rgba(each instanceof SVGElement ? style.fill : style.color);
    front[3] *= opacity(each) * (pseudo ? parseFloat(style.opacity) : 1);
    const back = behind(each);
    const found = contrast(over(front, back), back);
    if (found < least) problems.push(`contrast ${found.toFixed(2)}: ${text.trim().slice(0, 40)}`);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const each = texts.currentNode.parentElement;
    if (texts.currentNode.data.trim() && shown(each) && !each.closest("title, script, option")) check(each, texts.currentNode.data);
  }
  for (const each of document.querySelectorAll("input:not([type=hidden]):not([type=checkbox]), textarea")) {
    if (shown(each)) check(each, each.value || "the text of a field");
    if (shown(each) && each.placeholder) check(each, each.placeholder, "::placeholder");
  }

  // Nothing is reached only by scrolling sideways, except in a box that scrolls by itself.
  if (document.documentElement.scrollWidth > innerWidth) problems.push(`the page is ${document.documentElement.scrollWidth} pixels wide`);
  return problems;
}
