"use strict";
// Data arrives as JSON and is shown as text: no string of it ever becomes markup. A table is only touched
// where a cell differs, so that nothing flickers, no selection is lost and no scroll position jumps.

const STATUS_EVERY = 2000;
const LIST_EVERY = 5000;
const MOST_ROWS = 500;

const byId = (id) => document.getElementById(id);

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const number = new Intl.NumberFormat("en");
const plural = (count, word) => `${number.format(count)} ${word}${count === 1 ? "" : "s"}`;

function duration(seconds) {
  const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24;
  const minutes = Math.floor(seconds / 60) % 60;
  if (days > 0) return `${days}d ${hours}h`;
  if (hours > 0) return `${hours}h ${minutes}m`;
  return minutes > 0 ? `${minutes}m ${Math.floor(seconds % 60)}s` : `${Math.floor(seconds)}s`;
}

const day = (time) => (time ? time.slice(0, 10) : "");
const daysLeft = (time) => Math.floor((Date.parse(time) - Date.now()) / 86400000);

// Tables. A column has a label, a value to sort by and a function that says what the cell holds:
// { text, note, badge, tone }.

const lists = {
  certificates: {
    empty: "No certificates.",
    sort: { column: "Expires", descending: false },
    columns: [
      { label: "Names", value: (c) => c.names.join(" "), cell: (c) => ({ text: c.names.join(", ") || "(none)", note: c.default ? "default certificate" : "" }) },
      { label: "Secret", value: (c) => c.secret || "", cell: (c) => ({ text: c.secret || "generated" }) },
      { label: "Serial", kind: "code", value: (c) => c.serial, cell: (c) => ({ text: c.serial.length > 16 ? c.serial.slice(0, 16) + "…" : c.serial, title: c.serial }) },
      { label: "Algorithm", kind: "word", value: (c) => c.algorithm, cell: (c) => ({ text: c.algorithm }) },
      { label: "Expires", value: (c) => Date.parse(c.not_after), cell: expiry },
      { label: "OCSP", value: (c) => c.ocsp.state, cell: staple },
      { label: "Served for", value: (c) => c.hosts.length, cell: (c) => ({ text: hostList(c), title: c.hosts.join("\n") }) },
    ],
    rows: (answer) => answer.certificates,
    search: (c) => [c.names.join(" "), c.hosts.join(" "), c.secret, c.serial, c.algorithm, c.ocsp.state],
  },
  hosts: {
    empty: "No hosts.",
    sort: { column: "Host", descending: false },
    columns: [
      { label: "Host", value: (r) => r.host, cell: (r) => ({ text: r.host === "*" ? "(any host)" : r.host, note: r.tls ? "TLS" : "" }) },
      { label: "Path", value: (r) => r.path, cell: (r) => ({ text: r.path }) },
      { label: "Ingress", value: (r) => r.ingress, cell: (r) => ({ text: r.ingress }) },
      { label: "Backend", value: (r) => r.backend || "", cell: (r) => ({ text: r.backend || "none", note: r.protocol === "HTTP/1.1" ? "" : r.protocol }) },
      { label: "Endpoints", kind: "number", value: (r) => r.endpoints, cell: (r) => (r.unavailable ? { badge: r.backend ? "none" : "not served", tone: "bad", note: r.unavailable } : { text: number.format(r.endpoints) }) },
      { label: "Requests", kind: "number", value: (r) => r.requests, cell: (r) => ({ text: number.format(r.requests) }) },
      { label: "Failed", kind: "number", value: (r) => r.failed, cell: (r) => ({ text: number.format(r.failed), tone: r.failed ? "bad" : "" }) },
    ],
    rows: (answer) => answer.hosts.flatMap((host) => host.routes.map((route) => ({ host: host.host, tls: host.tls, ...route }))),
    search: (r) => [r.host, r.path, r.ingress, r.backend],
  },
  diagnostics: {
    empty: "Nothing to say: every object is used as it was written.",
    sort: { column: "Severity", descending: false },
    columns: [
      { label: "Severity", value: (d) => ["error", "warning", "info"].indexOf(d.severity), cell: (d) => ({ badge: d.severity, tone: { error: "bad", warning: "warn" }[d.severity] || "info" }) },
      { label: "Object", value: objectName, cell: (d) => ({ text: objectName(d), note: [d.field, d.file].filter(Boolean).join(" · ") }) },
      { label: "Reason", value: (d) => d.reason, cell: (d) => ({ text: d.reason }) },
      { label: "Message", value: (d) => d.message, cell: (d) => ({ text: d.message }) },
    ],
    rows: (answer) => answer.diagnostics,
    search: (d) => [objectName(d), d.field, d.file, d.reason, d.message, d.severity],
  },
  workers: {
    empty: "No workers.",
    sort: { column: "Worker", descending: false },
    columns: [
      { label: "Worker", value: (w) => w.worker, cell: (w) => ({ text: String(w.worker) }) },
      { label: "Connections", kind: "number", value: (w) => w.connections, cell: (w) => ({ text: number.format(w.connections) }) },
      { label: "Requests", kind: "number", value: (w) => w.requests, cell: (w) => ({ text: number.format(w.requests) }) },
      { label: "In flight", kind: "number", value: (w) => w.requests_in_flight, cell: (w) => ({ text: number.format(w.requests_in_flight) }) },
      { label: "Handshakes", kind: "number", value: (w) => w.handshakes_full + w.handshakes_resumed, cell: (w) => ({ text: number.format(w.handshakes_full + w.handshakes_resumed) }) },
      { label: "Resumed", kind: "number", value: (w) => w.handshakes_resumed, cell: (w) => ({ text: number.format(w.handshakes_resumed) }) },
      { label: "Failed", kind: "number", value: (w) => w.handshakes_failed, cell: (w) => ({ text: number.format(w.handshakes_failed) }) },
      { label: "Idle upstream", kind: "number", value: (w) => w.upstream_idle, cell: (w) => ({ text: number.format(w.upstream_idle) }) },
    ],
    rows: (answer) => answer.workers,
    search: () => [],
  },
  sources: {
    empty: "No sources.",
    sort: { column: "Source", descending: false },
    columns: [
      { label: "Source", value: (s) => s.name, cell: (s) => ({ text: s.name }) },
      { label: "State", value: (s) => s.synced, cell: (s) => (s.synced ? { badge: "listed", tone: "good" } : { badge: "waiting", tone: "warn" }) },
      { label: "Last error", value: (s) => s.last_error || "", cell: (s) => ({ text: s.last_error || "–", tone: s.last_error ? "bad" : "" }) },
    ],
    rows: (answer) => answer.sources,
    search: () => [],
  },
};

function expiry(certificate) {
  const left = daysLeft(certificate.not_after);
  const starts = daysLeft(certificate.not_before);
  if (starts >= 0) return { badge: "not yet valid", tone: "warn", note: `from ${day(certificate.not_before)}` };
  if (left < 0) return { badge: "expired", tone: "bad", note: day(certificate.not_after) };
  const tone = left < 7 ? "bad" : left < 21 ? "warn" : "good";
  return { badge: plural(left, "day"), tone, note: day(certificate.not_after) };
}

function staple(certificate) {
  const { state, last_error: error, next_update: next } = certificate.ocsp;
  const tone = { good: "good", pending: "warn", revoked: "bad", error: "bad", issuer_unknown: "warn", unknown: "warn" }[state] || "";
  return { badge: state.replaceAll("_", " "), tone, note: error || (next ? `until ${day(next)}` : "") };
}

function hostList(certificate) {
  const { hosts } = certificate;
  if (hosts.length === 0) return certificate.default ? "every other name" : "–";
  return hosts.slice(0, 3).join(", ") + (hosts.length > 3 ? ` and ${number.format(hosts.length - 3)} more` : "");
}

function objectName(finding) {
  const { object, file } = finding;
  if (!object) return file || "";
  return `${object.kind} ${object.namespace ? object.namespace + "/" : ""}${object.name}`;
}

for (const [name, list] of Object.entries(lists)) {
  list.place = byId(`table-${name}`);
  list.table = element("table");
  const row = list.table.createTHead().insertRow();
  for (const column of list.columns) {
    const head = element("th", column.kind === "number" ? "number" : "");
    head.scope = "col";
    const button = element("button", "", column.label);
    button.addEventListener("click", () => {
      list.sort = { column: column.label, descending: list.sort.column === column.label && !list.sort.descending };
      show(list);
    });
    head.append(button);
    row.append(head);
  }
  list.body = list.table.createTBody();
  list.hint = element("div", "empty");
  list.place.append(list.table, list.hint);
  list.field = byId(`search-${name}`);
  if (list.field) list.field.addEventListener("input", () => show(list));
}

const collator = new Intl.Collator("en", { numeric: true });
function compare(a, b) {
  return typeof a === "string" ? collator.compare(a, b) : a - b;
}

function show(list) {
  if (!list.answer) return;
  const wanted = list.field ? list.field.value.trim().toLowerCase() : "";
  const all = list.rows(list.answer);
  const found = wanted
    ? all.filter((row) => list.search(row).some((text) => text && text.toLowerCase().includes(wanted)))
    : all.slice();
  const column = list.columns.find((column) => column.label === list.sort.column);
  const direction = list.sort.descending ? -1 : 1;
  found.sort((a, b) => direction * compare(column.value(a), column.value(b)));
  list.columns.forEach((column, index) => {
    const order = column.label !== list.sort.column ? "none" : list.sort.descending ? "descending" : "ascending";
    list.table.tHead.rows[0].cells[index].setAttribute("aria-sort", order);
  });
  const rows = found.slice(0, MOST_ROWS);
  while (list.body.rows.length > rows.length) list.body.deleteRow(-1);
  rows.forEach((row, index) => fill(list.body.rows[index] || addRow(list), list.columns, row));
  list.table.hidden = rows.length === 0;
  const hidden = found.length - rows.length;
  list.hint.hidden = rows.length > 0 && hidden === 0;
  setText(list.hint, rows.length === 0
    ? (wanted ? `Nothing matches “${wanted}”.` : list.empty)
    : `${number.format(hidden)} more; search to narrow them down.`);
}

function addRow(list) {
  const row = list.body.insertRow();
  for (const column of list.columns) {
    const cell = row.insertCell();
    if (column.kind) cell.className = column.kind;
    cell.dataset.label = column.label;
  }
  return row;
}

function fill(row, columns, data) {
  columns.forEach((column, index) => {
    const content = column.cell(data);
    const key = JSON.stringify(content);
    const cell = row.cells[index];
    if (cell.shown === key) return;
    cell.shown = key;
    const main = content.badge
      ? element("span", `badge ${content.tone || ""}`, content.badge)
      : element("span", content.tone || "", content.text);
    const parts = [main];
    if (content.note) parts.push(element("small", "", content.note));
    cell.title = content.title || "";
    // A wrapper, so that the narrow layout has one thing beside the label.
    const wrapper = element("div");
    wrapper.append(...parts);
    cell.replaceChildren(wrapper);
  });
}

// Overview.

let before = null;

function showStatus(status, at) {
  const { diagnostics, workers } = status;
  const sum = (key) => workers.reduce((total, worker) => total + worker[key], 0);
  const rate = (key, now) => {
    if (!before || at <= before.at || now < before[key]) return null;
    return ((now - before[key]) * 1000) / (at - before.at);
  };
  const requests = status.requests;
  const handshakes = sum("handshakes_full") + sum("handshakes_resumed");
  const perSecond = (value) => (value === null ? "–" : number.format(value < 10 ? Math.round(value * 10) / 10 : Math.round(value)));
  const findings = diagnostics.error + diagnostics.warning + diagnostics.info;
  tiles([
    ["Requests/s", perSecond(rate("requests", requests)), `${number.format(requests)} in all`],
    ["Handshakes/s", perSecond(rate("handshakes", handshakes)), `${number.format(sum("handshakes_failed"))} failed`],
    ["Connections", number.format(sum("connections")), `${number.format(sum("accepted"))} accepted`],
    ["In flight", number.format(sum("requests_in_flight")), "requests"],
    ["Certificates", number.format(status.certificates), plural(status.hosts, "host")],
    ["Routes", number.format(status.routes), `${plural(status.clusters, "backend")}, ${plural(status.endpoints, "endpoint")}`],
    ["Diagnostics", number.format(findings), `${plural(diagnostics.error, "error")}, ${plural(diagnostics.warning, "warning")}`, diagnostics.error ? "bad" : diagnostics.warning ? "warn" : ""],
    ["Generation", number.format(status.generation), `up for ${duration(status.uptime_seconds)}`],
  ]);
  before = { at, requests, handshakes };

  setText(byId("version"), status.version);
  badge(status.ready ? "ready" : status.not_ready_because, status.ready ? "good" : status.draining ? "warn" : "bad");
  notices([
    ...status.pending_restart.map((pending) => ["", `${pending.key} takes effect with a restart: ${pending.reason}.`]),
    ...(status.last_restart_error ? [["bad", `The last restart failed: ${status.last_restart_error}`]] : []),
    ...(status.settings.error ? [["bad", `The last edit of the settings was refused: ${status.settings.error}`]] : []),
  ]);
  setText(byId("count-certificates"), number.format(status.certificates));
  setText(byId("count-hosts"), number.format(status.hosts));
  setText(byId("count-diagnostics"), number.format(findings));
  for (const name of ["workers", "sources"]) {
    lists[name].answer = status;
    show(lists[name]);
  }
}

function tiles(wanted) {
  const place = byId("tiles");
  wanted.forEach(([label, value, note, tone], index) => {
    let tile = place.children[index];
    if (!tile) {
      tile = element("div", "tile");
      tile.append(element("div", "label"), element("div"), element("div", "note"));
      place.append(tile);
    }
    setText(tile.children[0], label);
    setText(tile.children[1], value);
    tile.children[1].className = `value ${tone || ""}`;
    setText(tile.children[2], note);
  });
}

function badge(text, tone) {
  const place = byId("ready");
  setText(place, text);
  place.className = `badge ${tone}`;
}

let noticesShown = "";
function notices(wanted) {
  const key = JSON.stringify(wanted);
  if (key === noticesShown) return;
  noticesShown = key;
  byId("notices").replaceChildren(...wanted.map(([tone, text]) => element("div", `notice ${tone}`, text)));
}

// Views and refreshing.

const VIEWS = ["overview", "certificates", "hosts", "diagnostics"];
let view = "overview";

function select(wanted) {
  view = VIEWS.includes(wanted) ? wanted : "overview";
  for (const name of VIEWS) {
    byId(name).hidden = name !== view;
    byId(`tab-${name}`).setAttribute("aria-selected", String(name === view));
  }
  refreshList();
}

async function get(path) {
  const response = await fetch(path, { cache: "no-store" });
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

async function refreshStatus() {
  try {
    showStatus(await get("/api/v1/status"), performance.now());
  } catch {
    badge("no answer", "bad");
    before = null;
  }
}

async function refreshList() {
  const name = view;
  if (!lists[name]) return;
  try {
    lists[name].answer = await get(`/api/v1/${name}`);
    show(lists[name]);
  } catch {
    // The badge tells; what was known stays.
  }
}

// One request of a kind at a time, and none while nobody looks.
async function repeat(refresh, every) {
  for (;;) {
    if (!document.hidden) await refresh();
    await new Promise((done) => setTimeout(done, every));
  }
}

for (const name of VIEWS) {
  byId(`tab-${name}`).addEventListener("click", () => { location.hash = name; });
}
window.addEventListener("hashchange", () => select(location.hash.slice(1)));
select(location.hash.slice(1));
repeat(refreshStatus, STATUS_EVERY);
repeat(refreshList, LIST_EVERY);
