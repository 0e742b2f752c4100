// Makes the pages live. Each of them can be read without this script.
//
// The server draws; this script fetches the page again when the server says that it has changed, and carries the
// differences over, so that focus, selection, scroll position and open details stay. What others wrote only ever
// passes through as parsed text and attributes of the server's own, escaped, HTML.
"use strict";

(() => {
  const root = document.documentElement;
  root.dataset.script = "";

  // --- theme: that of the system, or the one chosen here; set before the first paint ---

  const THEMES = ["system", "light", "dark"];

  function storedTheme() {
    try {
      return THEMES.find((one) => one === localStorage.getItem("theme")) ?? "system";
    } catch {
      return "system"; // storage is blocked
    }
  }

  function applyTheme(theme) {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    const button = document.getElementById("theme");
    const label = button?.querySelector(".label");
    if (label) button.replaceChildren(label, theme);
  }

  applyTheme(storedTheme());

  function startTheme() {
    const button = document.getElementById("theme");
    applyTheme(storedTheme());
    button?.addEventListener("click", () => {
      const next = THEMES[(THEMES.indexOf(storedTheme()) + 1) % THEMES.length];
      try {
        localStorage.setItem("theme", next);
      } catch {
        // Then it holds for this page only.
      }
      applyTheme(next);
      redrawGrids();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawGrids);
  }

  // --- words for screen readers, on the viewer's own actions only ---

  function say(text) {
    let region = document.getElementById("said");
    if (!region) {
      region = document.createElement("div");
      region.id = "said";
      region.className = "visually-hidden";
      region.setAttribute("role", "status");
      document.body.append(region);
    }
    region.textContent = text;
  }

  // --- ages tick ---

  // The same form as `duration` of views/texts.py.
  function duration(seconds) {
    const whole = Math.max(0, Math.floor(seconds));
    for (const [size, unit, smallerSize, smaller] of [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]]) {
      if (whole >= size) {
        const rest = Math.floor((whole % size) / smallerSize);
        return `${Math.floor(whole / size)}${unit}${rest ? rest + smaller : ""}`;
      }
    }
    return `${whole}s`;
  }

  // By the server's clock: this one may be wrong.
  let clockOffset = 0;

  function readClock(page) {
    const made = Number(page.body.dataset.now);
    if (made) clockOffset = made - Date.now() / 1000;
  }

  function tick() {
    const now = Date.now() / 1000 + clockOffset;
    for (const element of document.querySelectorAll("time[data-age]")) {
      const text = duration(now - Date.parse(element.dateTime) / 1000) + element.dataset.age;
      if (element.textContent !== text) element.textContent = text;
    }
    for (const element of document.querySelectorAll("time[datetime]")) {
      const local = localTime(element.dateTime);
      if (element.dataset.local !== local) element.dataset.local = local;
      const both = `${element.dateTime}${local && `, here ${local}`}`;
      if ("age" in element.dataset && element.title !== both) element.title = both;
    }
  }

  // The viewer's time of a time in UTC, with the date if it differs; "" where it is UTC, too.
  function localTime(text) {
    const time = new Date(text);
    if (Number.isNaN(time.getTime()) || time.getTimezoneOffset() === 0) return "";
    const two = (number) => String(number).padStart(2, "0");
    const clock = `${two(time.getHours())}:${two(time.getMinutes())}`;
    if (time.getDate() === time.getUTCDate()) return clock;
    return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${clock}`;
  }

  // --- copy ---

  async function copy(button) {
    const text = button.closest("li, details")?.querySelector("pre")?.textContent;
    if (text === undefined) return;
    let copied = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      copied = copyBySelection(text); // plain http, or refused
      button.focus();
    }
    say(copied ? "Copied" : "Could not be copied");
    button.textContent = copied ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }

  function copyBySelection(text) {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "visually-hidden";
    document.body.append(area);
    area.select();
    try {
      return document.execCommand("copy");
    } finally {
      area.remove();
    }
  }

  // --- carry the differences over from a newer version of the page ---

  // Set by the viewer or by this script, not by the server.
  const OWN = new Set(["open", "data-own", "data-started", "data-local"]);

  function morph(old, made) {
    if (old.nodeType === Node.TEXT_NODE || old.nodeType === Node.COMMENT_NODE) {
      if (old.nodeValue !== made.nodeValue) old.nodeValue = made.nodeValue;
      return;
    }
    if (old.isEqualNode(made)) return;
    for (const { name, value } of [...made.attributes]) {
      if (!OWN.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!OWN.has(name) && !made.hasAttribute(name)) old.removeAttribute(name);
    }
    if (!old.hasAttribute("data-own")) morphChildren(old, made);
  }

  function isSameKind(old, made) {
    if (old.nodeType !== made.nodeType) return false;
    if (old.nodeType !== Node.ELEMENT_NODE) return true;
    return old.nodeName === made.nodeName && !old.id && !made.id && old.getAttribute("name") === made.getAttribute("name");
  }

  function morphChildren(old, made) {
    const kept = new Map();
    const wantedIds = new Set([...made.children].map((child) => child.id));
    for (const child of [...old.children]) {
      if (!child.id) continue;
      if (wantedIds.has(child.id)) kept.set(child.id, child);
      else child.remove();
    }
    let at = old.firstChild;
    for (const wanted of [...made.childNodes]) {
      const same = wanted.id ? kept.get(wanted.id) : at && isSameKind(at, wanted) ? at : undefined;
      if (!same) {
        old.insertBefore(document.importNode(wanted, true), at);
        continue;
      }
      if (same === at) at = at.nextSibling;
      // moveBefore keeps focus, selection and scroll positions of what it moves.
      else if (old.moveBefore) old.moveBefore(same, at);
      else old.insertBefore(same, at);
      morph(same, wanted);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function apply(page) {
    const states = new Map();
    for (const row of document.querySelectorAll("#results tbody tr[id]")) states.set(row.id, stateOf(row));
    const focused = document.activeElement;
    document.title = page.title;
    readClock(page);
    const stays = document.getElementById("lost");
    const main = document.getElementById("main");
    const made = page.getElementById("main");
    if (!main || !made) return;
    made.querySelector("#lost")?.replaceWith(document.importNode(stays, true));
    morph(main, made);
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    for (const row of document.querySelectorAll("#results tbody tr[id]")) {
      if (states.has(row.id) && states.get(row.id) !== stateOf(row)) row.dataset.changed = "";
    }
    const before = document.body.dataset.events ?? "";
    const events = page.body.dataset.events || streamOfNamespace(before);
    const isOther = streamOf(events) !== streamOf(before);
    document.body.dataset.events = events;
    if (isOther) connect();
    startParts();
    tick();
  }

  // The stream of a URL, without what the page has seen of it.
  function streamOf(events) {
    if (!events) return "";
    const url = new URL(events, location.href);
    url.searchParams.delete("seen");
    return url.href;
  }

  // What a page follows whose Framework is gone: it may be created again under the same name.
  function streamOfNamespace(events) {
    if (!events) return "";
    const url = new URL(events, location.href);
    url.searchParams.delete("uid");
    url.searchParams.delete("seen");
    return url.href;
  }

  const stateOf = (row) => row.querySelector(".phase-cell")?.textContent;

  // --- fetch ---

  let fetching = null;

  // Fetches the page and carries it over. Returns the seconds it took; the last caller wins.
  async function load(url) {
    fetching?.abort();
    const mine = (fetching = new AbortController());
    const begun = performance.now();
    const answer = await fetch(url, { signal: mine.signal, cache: "no-store", headers: { Accept: "text/html" } });
    const type = answer.headers.get("Content-Type") ?? "";
    if (answer.redirected && new URL(answer.url).pathname !== new URL(url, location.href).pathname) {
      location.reload(); // the login has ended
      return 0;
    }
    if (!type.startsWith("text/html") || answer.status >= 500) throw new Error(`HTTP ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (mine.signal.aborted) throw new DOMException("superseded", "AbortError");
    if (!page.getElementById("main")) throw new Error("not a page of ours"); // of a gateway
    apply(page);
    return (performance.now() - begun) / 1000;
  }

  let refreshing = false;
  let stale = false;

  // After each change: at most one request at a time, with a pause in proportion to the last one.
  async function refresh() {
    stale = true;
    if (refreshing || document.hidden) return;
    refreshing = true;
    try {
      while (stale && !document.hidden) {
        stale = false;
        let took = 1;
        try {
          took = await load(location.href);
        } catch (error) {
          if (error.name !== "AbortError") lose();
        }
        await new Promise((resolve) => { setTimeout(resolve, Math.max(300, 2000 * took)); });
      }
    } finally {
      refreshing = false;
    }
  }

  // --- server-sent events ---

  const PATIENCE_MS = 4000;
  let source = null;
  let delay = 1000;
  let lostSince = 0;
  let lostTimer = 0;
  let retryTimer = 0;

  function connect() {
    source?.close();
    source = null;
    clearTimeout(retryTimer);
    const url = document.body.dataset.events;
    // Over HTTP/1.1 browsers have six connections to a server, so a seventh tab would never load.
    if (!url || document.hidden) return;
    const mine = (source = new EventSource(url));
    mine.addEventListener("open", () => {
      delay = 1000;
      const missed = lostSince > 0;
      lostSince = 0;
      clearTimeout(lostTimer);
      lostTimer = 0;
      show("live", "Live");
      if (missed) refresh();
    });
    mine.addEventListener("changed", refresh);
    mine.addEventListener("message", refresh);
    mine.addEventListener("error", () => {
      if (mine !== source) return;
      lose();
      // The browser itself tries again after a lost connection, but not after a refusal.
      if (mine.readyState === EventSource.CLOSED) {
        clearTimeout(retryTimer);
        retryTimer = setTimeout(connect, delay);
        delay = Math.min(30000, delay * 2);
      }
    });
  }

  function disconnect() {
    source?.close();
    source = null;
    clearTimeout(retryTimer);
    clearTimeout(lostTimer);
    lostTimer = 0;
    lostSince = 0;
  }

  function lose() {
    lostSince ||= Date.now();
    if (lostTimer || !source) return;
    // A proxy that ends a long answer is no reason for alarm.
    lostTimer = setTimeout(() => show("lost", "Disconnected"), PATIENCE_MS);
  }

  function show(state, text) {
    const link = document.getElementById("link");
    if (link && link.dataset.link !== state) {
      link.dataset.link = state;
      link.textContent = text;
    }
    const banner = document.getElementById("lost");
    if (!banner) return;
    const lost = state === "lost";
    if (lost && banner.hidden) {
      const title = document.createElement("strong");
      title.textContent = "Disconnected";
      const since = new Date(lostSince).toISOString().slice(11, 19);
      banner.replaceChildren(title, ` What you see is as of ${since} UTC and may have changed. Trying to connect again.`);
    }
    banner.hidden = !lost;
  }

  // --- filters: the form works without script, too ---

  const TYPING_MS = 200;
  let typing = 0;

  function filterUrl(form) {
    const url = new URL(form.action);
    url.search = "";
    for (const [name, value] of new FormData(form)) {
      if (value || form.querySelector(`[name="${name}"][data-keep-empty]`)) url.searchParams.append(name, value);
    }
    return url.href;
  }

  async function go(url) {
    clearTimeout(typing);
    history.replaceState(null, "", url);
    try {
      await load(url);
      say(document.getElementById("found")?.textContent.trim() || document.querySelector("#results h2")?.textContent || "");
    } catch (error) {
      if (error.name !== "AbortError") location.assign(url); // shows what is wrong
    }
  }

  function startFilters() {
    document.addEventListener("input", (event) => {
      const form = event.target.closest?.("form[data-filters]");
      if (!form || event.target.type !== "search") return;
      clearTimeout(typing);
      typing = setTimeout(() => go(filterUrl(form)), TYPING_MS);
    });
    document.addEventListener("change", (event) => {
      const form = event.target.closest?.("form[data-filters]");
      if (form && event.target.type !== "search") go(filterUrl(form));
    });
    document.addEventListener("submit", (event) => {
      if (!event.target.matches("form[data-filters]")) return;
      event.preventDefault();
      go(filterUrl(event.target));
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest?.("a[data-sort]");
      if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go(link.href);
    });
  }

  // --- the grid of Tasks: a canvas, and a list box with one option that follows the keys ---

  const PHASES = { r: "running", c: "succeeded", s: "stopped", e: "ending", w: "pending", f: "failed" };
  // In a crowd, what goes well steps back.
  const STRENGTH = { running: 0.6, succeeded: 0.6, stopped: 0.7, ending: 0.9, pending: 1, failed: 1 };
  const GUTTER = 46;
  const grids = new Map();
  let filtered = new Set();

  class Grid {
    constructor(box) {
      this.box = box;
      this.role = box.dataset.role;
      this.active = -1;
      this.hovered = -1;
      this.data = { phases: "", indexes: null, texts: [], text: [] };
      this.canvas = document.createElement("canvas");
      this.canvas.setAttribute("aria-hidden", "true");
      this.cursor = document.createElement("a");
      this.cursor.className = "cursor";
      this.cursor.tabIndex = -1;
      this.cursor.hidden = true;
      this.cursor.setAttribute("aria-hidden", "true");
      this.tip = document.createElement("div");
      this.tip.className = "tip";
      this.tip.hidden = true;
      this.tip.setAttribute("aria-hidden", "true");
      this.keys = document.createElement("div");
      this.keys.className = "keys";
      this.keys.tabIndex = 0;
      this.keys.setAttribute("role", "listbox");
      this.keys.setAttribute("aria-describedby", "cells-keys");
      // Two that take turns: a screen reader reads a new active option, not a new text of the same.
      this.options = [0, 1].map((number) => {
        const option = document.createElement("div");
        option.id = `${box.id}-option-${number}`;
        option.className = "visually-hidden";
        option.setAttribute("role", "option");
        return option;
      });
      this.turn = 0;
      this.keys.append(...this.options);
      box.dataset.own = "";
      box.replaceChildren(this.canvas, this.cursor, this.tip, this.keys);
      this.keys.addEventListener("keydown", (event) => this.onKey(event));
      this.keys.addEventListener("focus", () => this.point(Math.max(0, this.active)));
      this.keys.addEventListener("blur", () => this.unpoint());
      box.addEventListener("pointermove", (event) => this.onPointer(event));
      box.addEventListener("pointerdown", (event) => this.onPointer(event));
      box.addEventListener("pointerleave", (event) => {
        if (event.pointerType !== "touch") this.onLeave();
      });
      new ResizeObserver(() => this.draw()).observe(box);
      this.update();
    }

    get count() {
      return this.data.phases.length;
    }

    // Reads the data that the server wrote beside the box, which a refresh may have changed.
    update() {
      const text = document.getElementById(`cells-data-${this.role}`)?.textContent ?? "";
      if (text === this.source) return;
      this.source = text;
      this.data = JSON.parse(text);
      this.keys.setAttribute("aria-label", `Tasks of ${this.role}`);
      if (this.active >= this.count) this.active = this.count - 1;
      this.draw();
      for (const turn of [0, 1]) this.describe(Math.max(0, this.active), this.turn !== turn);
      if (!this.tip.hidden) this.place(this.hovered >= 0 ? this.hovered : this.active);
    }

    indexOf(cell) {
      return this.data.indexes ? this.data.indexes[cell] : cell;
    }

    nameOf(cell) {
      return `${this.role}[${this.indexOf(cell)}]`;
    }

    layout() {
      const width = this.box.clientWidth;
      const count = Math.max(1, this.count);
      this.size = count <= 64 ? 26 : count <= 400 ? 20 : count <= 2500 ? 14 : width < 600 ? 8 : 11;
      this.gutter = count <= 64 ? 0 : GUTTER;
      const most = Math.max(1, Math.floor((width - this.gutter) / this.size));
      // Tens to a line, so that a place tells the index.
      this.columns = count <= most ? count : most >= 20 ? most - (most % 10) : most >= 10 ? 10 : most;
      this.rows = Math.ceil(count / this.columns);
      return width;
    }

    draw() {
      const width = this.layout();
      if (!width || !this.count) return;
      const height = this.rows * this.size;
      const scale = window.devicePixelRatio || 1;
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.height = `${height}px`;
      const style = getComputedStyle(this.box);
      const color = (name) => style.getPropertyValue(`--${name}`).trim();
      const paint = this.canvas.getContext("2d");
      paint.scale(scale, scale);
      this.drawGutter(paint, color("muted"));
      const gap = this.size >= 14 ? 3 : this.size >= 10 ? 2 : 1;
      const side = this.size - gap;
      const colors = { surface: color("surface"), mark: color("mark") };
      // By phase: few changes of colors, so that thousands of cells take milliseconds. Failed ones last, and larger.
      for (const [letter, phase] of Object.entries(PHASES)) {
        const cells = [];
        for (let cell = this.data.phases.indexOf(letter); cell >= 0; cell = this.data.phases.indexOf(letter, cell + 1)) {
          cells.push([this.x(cell) + gap / 2, this.y(cell) + gap / 2]);
        }
        paint.globalAlpha = !filtered.size ? (this.count > 400 ? STRENGTH[phase] : 1) : filtered.has(phase) ? 1 : 0.12;
        drawCells(paint, phase, cells, side, { ...colors, fill: color(phase) });
      }
      paint.globalAlpha = 1;
      if (!this.tip.hidden) this.place(this.hovered >= 0 ? this.hovered : this.active);
    }

    drawGutter(paint, color) {
      if (!this.gutter) return;
      const every = Math.max(1, Math.ceil(16 / this.size));
      paint.fillStyle = color;
      paint.font = `11px ${getComputedStyle(this.box).fontFamily}`;
      paint.textAlign = "right";
      paint.textBaseline = "top";
      for (let row = 0; row < this.rows; row += every) {
        paint.fillText(this.indexOf(row * this.columns).toString(), this.gutter - 8, row * this.size + (this.size >= 14 ? this.size / 2 - 6 : 0));
      }
    }

    x(cell) {
      return this.gutter + (cell % this.columns) * this.size;
    }

    y(cell) {
      return Math.floor(cell / this.columns) * this.size;
    }

    cellAt(event) {
      const place = this.box.getBoundingClientRect();
      const column = Math.floor((event.clientX - place.left - this.gutter) / this.size);
      const row = Math.floor((event.clientY - place.top) / this.size);
      const cell = row * this.columns + column;
      return column >= 0 && column < this.columns && cell >= 0 && cell < this.count ? cell : -1;
    }

    onPointer(event) {
      const cell = this.cellAt(event);
      if (cell < 0 || cell === this.hovered) return;
      this.hovered = cell;
      this.place(cell);
    }

    onLeave() {
      this.hovered = -1;
      if (document.activeElement === this.keys && this.active >= 0) this.place(this.active);
      else this.unpoint();
    }

    // Puts a real link over the cell: it can be opened in any way that the browser knows.
    place(cell) {
      if (cell < 0 || cell >= this.count) return;
      this.cursor.href = this.box.dataset.href + this.indexOf(cell);
      this.cursor.hidden = false;
      this.cursor.style.transform = `translate(${this.x(cell)}px, ${this.y(cell)}px)`;
      this.cursor.style.width = this.cursor.style.height = `${this.size}px`;
      const phase = PHASES[this.data.phases[cell]];
      const name = document.createElement("strong");
      name.textContent = this.nameOf(cell);
      const label = document.createElement("span");
      label.className = `phase ${phase}`;
      label.textContent = phase;
      const text = document.createElement("span");
      text.textContent = this.data.texts[this.data.text[cell]] ?? "";
      this.tip.replaceChildren(name, label, text);
      this.tip.hidden = false;
      const room = this.box.clientWidth - this.tip.offsetWidth;
      const left = Math.max(0, Math.min(room, this.x(cell) + this.size / 2 - this.tip.offsetWidth / 2));
      const above = this.y(cell) - this.tip.offsetHeight - 6;
      const seen = this.box.getBoundingClientRect().top + above > 60;
      this.tip.style.transform = `translate(${left}px, ${seen ? above : this.y(cell) + this.size + 6}px)`;
    }

    unpoint() {
      this.cursor.hidden = true;
      this.tip.hidden = true;
    }

    describe(cell, fresh) {
      if (fresh) this.turn = 1 - this.turn;
      const option = this.options[this.turn];
      const phase = PHASES[this.data.phases[cell]];
      option.textContent = `${this.nameOf(cell)}, ${phase}, ${this.data.texts[this.data.text[cell]] ?? ""}`;
      option.setAttribute("aria-selected", "true");
      option.setAttribute("aria-posinset", String(cell + 1));
      option.setAttribute("aria-setsize", String(this.count));
      this.options[1 - this.turn].setAttribute("aria-selected", "false");
      this.keys.setAttribute("aria-activedescendant", option.id);
    }

    point(cell) {
      if (!this.count) return;
      this.active = Math.max(0, Math.min(this.count - 1, cell));
      this.hovered = -1;
      this.describe(this.active, true);
      this.place(this.active);
      this.cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
    }

    // The next cell in a direction that the filter shows; the same if there is none.
    step(from, by) {
      for (let cell = from + by; cell >= 0 && cell < this.count; cell += by) {
        if (!filtered.size || filtered.has(PHASES[this.data.phases[cell]])) return cell;
      }
      return from;
    }

    // The next failed Task after `from`, or -1.
    nextFailed(from, by = 1) {
      return by > 0 ? this.data.phases.indexOf("f", from + 1) : from > 0 ? this.data.phases.lastIndexOf("f", from - 1) : -1;
    }

    onKey(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const from = this.active;
      const page = this.columns * Math.max(1, Math.floor(400 / this.size));
      const target = {
        ArrowRight: () => this.step(from, 1),
        ArrowLeft: () => this.step(from, -1),
        ArrowDown: () => (filtered.size ? this.step(from, 1) : from + this.columns < this.count ? from + this.columns : from),
        ArrowUp: () => (filtered.size ? this.step(from, -1) : from - this.columns >= 0 ? from - this.columns : from),
        Home: () => 0,
        End: () => this.count - 1,
        PageDown: () => Math.min(this.count - 1, from + page),
        PageUp: () => Math.max(0, from - page),
      }[event.key];
      if (target) {
        event.preventDefault();
        this.point(target());
      } else if (event.key === "Enter") {
        event.preventDefault();
        location.assign(this.box.dataset.href + this.indexOf(from));
      } else if (event.key === "Escape") {
        this.unpoint();
      } else if (event.key.toLowerCase() === "f") {
        event.preventDefault();
        showNextFailed(this, from, event.shiftKey ? -1 : 1);
      }
    }
  }

  // Draws the cells of one phase. The shapes tell phases apart without colors; those of failed Tasks fill the gaps.
  function drawCells(paint, phase, cells, side, { fill, surface, mark }) {
    paint.beginPath();
    paint.fillStyle = fill;
    if (phase === "pending") {
      const line = side >= 11 ? 2 : 1.4;
      for (const [x, y] of cells) paint.rect(x + line / 2, y + line / 2, side - line, side - line);
      paint.lineWidth = line;
      paint.strokeStyle = fill;
      paint.fillStyle = surface;
      paint.fill();
      paint.stroke();
    } else if (phase === "succeeded") {
      for (const [x, y] of cells) {
        paint.moveTo(x + side, y + side / 2);
        paint.arc(x + side / 2, y + side / 2, side / 2, 0, 2 * Math.PI);
      }
      paint.fill();
    } else if (phase === "stopped") {
      for (const [x, y] of cells) paint.rect(x, y + side * 0.3, side, side * 0.4);
      paint.fill();
    } else if (phase === "ending") {
      for (const [x, y] of cells) {
        paint.moveTo(x, y);
        paint.lineTo(x + side, y + side);
        paint.lineTo(x, y + side);
      }
      paint.fill();
    } else if (phase === "failed") {
      for (const [x, y] of cells) paint.rect(x - 1, y - 1, side + 2, side + 2);
      paint.fill();
    } else {
      for (const [x, y] of cells) paint.rect(x, y, side, side);
      paint.fill();
    }
    if (side < 6 || (phase !== "failed" && (phase !== "succeeded" || side < 14))) return;
    paint.beginPath();
    for (const [x, y] of cells) {
      const at = (across, down) => [x + side * across, y + side * down];
      if (phase === "failed") {
        paint.moveTo(...at(0.25, 0.25));
        paint.lineTo(...at(0.75, 0.75));
        paint.moveTo(...at(0.75, 0.25));
        paint.lineTo(...at(0.25, 0.75));
      } else {
        paint.moveTo(...at(0.27, 0.53));
        paint.lineTo(...at(0.43, 0.69));
        paint.lineTo(...at(0.72, 0.34));
      }
    }
    paint.lineWidth = Math.max(1.3, side / 8);
    paint.lineCap = "round";
    paint.strokeStyle = mark;
    paint.stroke();
  }

  const shownGrids = () => [...document.querySelectorAll("[data-cells]")].map((box) => grids.get(box)).filter(Boolean);

  function redrawGrids() {
    for (const grid of shownGrids()) grid.draw();
  }

  function showNextFailed(grid, from, by = 1) {
    const all = shownGrids();
    if (!all.length) return;
    let place = grid ? all.indexOf(grid) : 0;
    let cell = all[place].nextFailed(from, by);
    for (let tried = 0; cell < 0 && tried < all.length; tried++) {
      place = (place + by + all.length) % all.length;
      cell = all[place].nextFailed(by > 0 ? -1 : all[place].count, by);
    }
    if (cell < 0) {
      say("No Task has failed");
      return;
    }
    all[place].active = cell;
    if (document.activeElement === all[place].keys) all[place].point(cell);
    else all[place].keys.focus(); // points at the active cell
  }

  function startGrids() {
    for (const box of document.querySelectorAll("[data-cells]")) {
      const grid = grids.get(box);
      if (grid) grid.update();
      else grids.set(box, new Grid(box));
    }
    for (const box of grids.keys()) if (!box.isConnected) grids.delete(box);
    for (const chip of document.querySelectorAll("[data-phase-filter] button[value]")) {
      chip.setAttribute("aria-pressed", String(filtered.has(chip.value)));
    }
  }

  function onChip(chip) {
    if (filtered.has(chip.value)) filtered.delete(chip.value);
    else filtered.add(chip.value);
    chip.setAttribute("aria-pressed", String(filtered.has(chip.value)));
    redrawGrids();
  }

  // --- the timeline: zooms in time, texts keep their size ---

  const LEFT = 150;
  const RIGHT = 1180;
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const MOST_ZOOM = 2000;
  // The part of the whole time that is shown, from 0 to 1.
  let shownFrom = 0;
  let shownTo = 1;

  const timeline = () => document.querySelector("[data-timeline] svg");

  // Moves what the server drew. Its places are kept in attributes, of which a refresh brings new ones.
  function drawTimeline() {
    const svg = timeline();
    if (!svg) return;
    const scale = 1 / (shownTo - shownFrom);
    const place = (x) => LEFT + ((x - LEFT) / (RIGHT - LEFT) - shownFrom) * scale * (RIGHT - LEFT);
    const original = (element, name) => Number((element.dataset[name] ??= element.getAttribute(name)));
    for (const bar of svg.querySelectorAll("rect:has(title)")) {
      const from = original(bar, "x");
      const wide = original(bar, "width");
      const begin = Math.max(LEFT, place(from));
      const end = Math.min(RIGHT, Math.max(place(from + wide), place(from) + 1.5));
      bar.classList.toggle("beyond", end <= begin);
      bar.setAttribute("x", begin.toFixed(1));
      bar.setAttribute("width", Math.max(0, end - begin).toFixed(1));
    }
    for (const text of svg.querySelectorAll("text.in, text.out")) {
      const x = place(original(text, "x"));
      text.classList.toggle("beyond", x < LEFT || x > RIGHT - 60);
      text.setAttribute("x", x.toFixed(1));
    }
    drawTicks(svg, place);
  }

  function drawTicks(svg, place) {
    const begin = Number(svg.dataset.begin);
    const end = Number(svg.dataset.end);
    for (const tick of svg.querySelectorAll(":scope > line.grid, :scope > text.small[text-anchor=middle]")) {
      if (shownFrom === 0 && shownTo === 1) tick.classList.remove("beyond");
      else tick.classList.add("beyond");
    }
    svg.querySelector("g.ticks")?.remove();
    if (!end || (shownFrom === 0 && shownTo === 1)) return;
    const space = "http://www.w3.org/2000/svg";
    const group = document.createElementNS(space, "g");
    group.setAttribute("class", "ticks");
    group.setAttribute("aria-hidden", "true");
    const first = begin + (end - begin) * shownFrom;
    const last = begin + (end - begin) * shownTo;
    const step = STEPS.find((one) => (last - first) / one <= 8) ?? 86400 * Math.ceil((last - first) / 86400 / 8);
    const bottom = svg.querySelector("line.grid")?.getAttribute("y2") ?? "100%";
    for (let time = Math.ceil(first / step) * step; time <= last; time += step) {
      const x = place(LEFT + ((time - begin) / (end - begin)) * (RIGHT - LEFT)).toFixed(1);
      const line = document.createElementNS(space, "line");
      for (const [name, value] of Object.entries({ class: "grid now", x1: x, x2: x, y1: "76", y2: bottom })) line.setAttribute(name, value);
      const text = document.createElementNS(space, "text");
      for (const [name, value] of Object.entries({ class: "small", x, y: "72", "text-anchor": "middle" })) text.setAttribute(name, value);
      const iso = new Date(time * 1000).toISOString();
      text.textContent = time % 60 ? iso.slice(11, 19) : time % 86400 ? iso.slice(11, 16) : iso.slice(5, 10);
      group.append(line, text);
    }
    svg.querySelector("defs")?.after(group);
  }

  // Zooms by a factor around a place from 0 to 1 of the whole.
  function zoom(factor, around = (shownFrom + shownTo) / 2) {
    const wide = Math.min(1, Math.max(1 / MOST_ZOOM, (shownTo - shownFrom) * factor));
    const share = (around - shownFrom) / (shownTo - shownFrom);
    showPart(around - share * wide, wide);
  }

  function showPart(from, wide) {
    shownFrom = Math.max(0, Math.min(1 - wide, from));
    shownTo = shownFrom + wide;
    if (wide > 0.9999) [shownFrom, shownTo] = [0, 1];
    drawTimeline();
  }

  const ZOOMS = {
    in: () => zoom(0.5),
    out: () => zoom(2),
    left: () => showPart(shownFrom - (shownTo - shownFrom) / 4, shownTo - shownFrom),
    right: () => showPart(shownFrom + (shownTo - shownFrom) / 4, shownTo - shownFrom),
    all: () => showPart(0, 1),
  };
  const ZOOM_KEYS = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all" };

  function startTimeline() {
    const box = document.querySelector("[data-timeline]");
    if (!box) return;
    // The grid leads to the same Tasks in fewer steps.
    for (const link of box.querySelectorAll("a")) link.setAttribute("tabindex", "-1");
    drawTimeline();
    if (box.dataset.started) return;
    box.dataset.started = "";
    box.addEventListener("keydown", (event) => {
      const action = ZOOM_KEYS[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey || event.target !== box) return;
      event.preventDefault();
      ZOOMS[action]();
    });
    // The wheel scrolls the page until the picture has the focus.
    box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== box) return;
      event.preventDefault();
      const place = timeline().getBoundingClientRect();
      const x = ((event.clientX - place.left) / place.width) * 1200;
      const share = Math.max(0, Math.min(1, (x - LEFT) / (RIGHT - LEFT)));
      zoom(Math.exp(event.deltaY * 0.002), shownFrom + share * (shownTo - shownFrom));
    }, { passive: false });
  }

  // --- all pages ---

  function startParts() {
    startGrids();
    startTimeline();
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button");
    if (!button) return;
    if (button.hasAttribute("data-copy")) copy(button);
    else if (button.hasAttribute("data-next-failed")) {
      const focused = shownGrids().find((grid) => grid.active >= 0);
      showNextFailed(focused ?? null, focused ? focused.active : -1);
    } else if (button.closest("[data-zoom]")) ZOOMS[button.value]();
    else if (button.closest("[data-phase-filter]") && button.value) onChip(button);
  });

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      disconnect();
      return;
    }
    connect(); // says what has changed since
    if (stale) refresh();
  });

  document.addEventListener("DOMContentLoaded", () => {
    readClock(document);
    startTheme();
    startFilters();
    startParts();
    tick();
    setInterval(tick, 1000);
    connect();
  });

  // A page from the browser's cache of whole pages has lost its connection.
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    connect();
    refresh();
  });
})();
