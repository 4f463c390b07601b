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

// Bytes in the unit that reads best, as the rest of the page has them.
function size(bytes) {
  if (bytes === null || bytes === undefined) return "--";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const at = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${Number((bytes / 1024 ** at).toPrecision(3))} ${units[at]}`;
}

// Seconds as people say them.
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "--";
  if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
  return seconds < 7200 ? `${Number((seconds / 60).toPrecision(3))} min` : `${Number((seconds / 3600).toPrecision(3))} h`;
}

function inner(box) {
  const style = getComputedStyle(box);
  return Math.max(200, box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
}

function plain(value) {
  return value === null || value === undefined ? "--" : Number(value.toPrecision(3)).toLocaleString("en");
}

// The legend says the newest value while nobody points at another one.
function last(plot, line) {
  return plot.data[line] ? plot.data[line].at(-1) : null;
}

// `least` is how far up a chart reaches at least, `show` writes a value of it, and lines are `increments` apart.
function chart(id, lines, least = 1, show = plain, increments = undefined) {
  const box = document.getElementById(id);
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const options = {
    width: inner(box),
    height: 160,
    // Room for the half of the last time that is beyond the chart.
    padding: [8, 30, 0, 0],
    series: [
      { label: "time", value: (plot, at) => clock(at ?? last(plot, 0)) },
      ...lines.map(([label, name]) => ({ label, stroke: colour(name), width: 2, value: (plot, at, line) => show(at ?? last(plot, line)) })),
    ],
    axes: [{ ...axis, space: 80, values: (_, at) => at.map(clock) }, { ...axis, size: 72, values: (_, at) => at.map(show), incrs: increments }],
    scales: {
      x: { range: (_, low, high) => [Math.min(low, high - SPAN_SECONDS), high] },
      y: { range: (_, low, high) => [0, Math.max(high, least)] },
    },
  };
  const plot = new uPlot(options, [[], ...lines.map(() => [])], box);
  addEventListener("resize", () => plot.setSize({ width: inner(box), height: 160 }));
  return plot;
}

function startCharts(section) {
  const rates = chart("chart-rates", [["published", "--one"], ["delivered", "--two"]]);
  const lag = chart("chart-lag", [["lag", "--three"]], 1, duration, [1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 36000, 86400, 864000]);
  const held = chart("chart-held", [["held", "--one"]], 1024, size, Array.from({ length: 50 }, (_, n) => 2 ** n));
  let isAsking = false;
  const refresh = async () => {
    // A console that waits for its broker is not asked again before it has answered.
    if (isAsking) return;
    isAsking = true;
    try {
      const answer = await fetch(section.dataset.charts, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      const found = await answer.json();
      rates.setData([found.at, found.published, found.delivered]);
      lag.setData([found.at, found.lag]);
      held.setData([found.at, found.held]);
      section.dataset.samples = String(found.at.length);
    } catch (problem) {
      console.warn("the charts could not be refreshed", problem);
    } finally {
      isAsking = false;
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
  // A stream fails without a reason: the page itself is asked for it, and leads to the login if that is it.
  document.body.addEventListener("htmx:sseError", async () => {
    try {
      const answer = await fetch(location.href, { headers: { "HX-Request": "true", "HX-Current-URL": location.href } });
      const login = answer.headers.get("HX-Redirect");
      if (login) location.assign(login);
      else if (!answer.ok) fails(`the console answers ${answer.status}`);
    } catch {
      fails("the console does not answer");
    }
  });
  document.body.addEventListener("htmx:afterRequest", (event) => event.detail.successful && works());
  document.body.addEventListener("htmx:sseOpen", works);
}

function startTail() {
  const button = document.getElementById("pause");
  const told = document.getElementById("told");
  const paused = document.getElementById("paused");
  let isPaused = false;
  let missed = 0;
  // While it is paused the last word of the tail is not true any more: the page says what was left out instead.
  const tell = () => {
    paused.hidden = !isPaused;
    told.hidden = isPaused;
    paused.textContent = `Paused: these rows stay. ${missed ? `At least ${missed} event${missed === 1 ? "" : "s"}` : "No event"} came since; going on does not show them.`;
  };
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    button.textContent = isPaused ? "Go on" : "Pause";
    missed = 0;
    tell();
  });
  document.body.addEventListener("htmx:sseBeforeMessage", (event) => {
    if (!isPaused) return;
    event.preventDefault();
    if (event.detail.type === "rows") missed += (event.detail.data.match(/<tr>/g) || []).length;
    tell();
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
