// Says which elements of a page do not show that they have the focus: `() => their beginnings`.
() => [...document.querySelectorAll("a, button, input:not([type=hidden]), textarea, summary")]
  .filter((each) => each.checkVisibility())
  .filter((each) => {
    each.focus();
    const style = getComputedStyle(document.activeElement);
    return document.activeElement !== each || style.outlineStyle === "none" || !parseFloat(style.outlineWidth);
  })
  .map((each) => each.outerHTML.slice(0, 80))
