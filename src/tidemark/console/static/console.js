// The few lines of script that pages need besides htmx: charts, a tail that can be paused, and three keys.
"use strict";

const ROWS_MAX = 500;
const REFRESH_MS = 2000;
// A chart shows at least so much, however few samples there are.
const SPAN_SECONDS = 60;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Times are UTC on all pages, whatever the browser's time zone is.
function clock(seconds) {
  return seconds === null || seconds === undefined ? "--" : new Date(seconds * 1e3).toISOString().slice(11, 19);
}

function chart(id, lines) {
  const box = document.getElementById(id);
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const options = {
    width: box.clientWidth || 360,
    height: 160,
    series: [
      { label: "time", value: (_, at) => clock(at) },
      ...lines.map(([label, name]) => ({ label, stroke: colour(name), width: 2 })),
    ],
    axes: [{ ...axis, space: 80, values: (_, at) => at.map(clock) }, { ...axis, size: 64 }],
    scales: {
      x: { range: (_, low, high) => [Math.min(low, high - SPAN_SECONDS), high] },
      y: { range: (_, low, high) => [0, Math.max(high, 1)] },
    },
  };
  const plot = new uPlot(options, [[], ...lines.map(() => [])], box);
  addEventListener("resize", () => plot.setSize({ width: box.clientWidth, height: 160 }));
  return plot;
}

function startCharts(section) {
  const rates = chart("chart-rates", [["published", "--one"], ["delivered", "--two"]]);
  const lag = chart("chart-lag", [["lag", "--three"]]);
  const held = chart("chart-held", [["held", "--one"]]);
  const refresh = async () => {
    try {
      const answer = await fetch(section.dataset.charts, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      const found = await answer.json();
      rates.setData([found.at, found.published, found.delivered]);
      lag.setData([found.at, found.lag]);
      held.setData([found.at, found.held.map((bytes) => bytes / 1e6)]);
      section.dataset.samples = String(found.at.length);
    } catch (problem) {
      console.warn("the charts could not be refreshed", problem);
    }
  };
  refresh();
  setInterval(refresh, REFRESH_MS);
}

// A page that cannot be refreshed looks as if nothing happened: it says so, and since when.
function startStale() {
  const banner = document.getElementById("stale");
  let since = null;
  const fails = (reason) => {
    since = since || clock(Date.now() / 1e3);
    banner.textContent = `This page has not been refreshed since ${since}: ${reason}`;
    banner.hidden = false;
  };
  const works = () => {
    since = null;
    banner.hidden = true;
  };
  document.body.addEventListener("htmx:responseError", (event) => {
    const page = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
    const problem = page.querySelector("pre.problem");
    fails(problem ? problem.textContent : `the console answers ${event.detail.xhr.status}`);
  });
  document.body.addEventListener("htmx:sendError", () => fails("the console does not answer"));
  document.body.addEventListener("htmx:sseError", () => fails("the console does not answer"));
  document.body.addEventListener("htmx:afterRequest", (event) => event.detail.successful && works());
  document.body.addEventListener("htmx:sseOpen", works);
}

function startTail() {
  const button = document.getElementById("pause");
  let isPaused = false;
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    button.textContent = isPaused ? "Go on" : "Pause";
  });
  document.body.addEventListener("htmx:sseBeforeMessage", (event) => {
    if (isPaused) event.preventDefault();
  });
  document.body.addEventListener("htmx:sseMessage", () => {
    const rows = document.getElementById("rows");
    while (rows.rows.length > ROWS_MAX) rows.deleteRow(-1);
  });
}

// "/" goes to the page's first field, "p" pauses a tail, "?" goes to the menu; not while somebody types.
function startKeys() {
  addEventListener("keydown", (event) => {
    const isTyping = event.target.closest && event.target.closest("input, textarea, select, [contenteditable]");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const goal = {
      "/": () => document.querySelector("main input:not([type=hidden]):not([type=checkbox]), main textarea"),
      p: () => document.getElementById("pause"),
      "?": () => document.querySelector("nav a"),
    }[event.key];
    const found = goal && goal();
    if (!found) return;
    event.preventDefault();
    if (event.key === "p") found.click();
    else found.focus();
  });
}

addEventListener("DOMContentLoaded", () => {
  startKeys();
  startStale();
  const section = document.querySelector("[data-charts]");
  if (section) startCharts(section);
  if (document.getElementById("tail")) startTail();
});
