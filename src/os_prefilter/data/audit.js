
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 100;
  const NAMES = 100;
  const ORDER = ["becomes unschedulable", "becomes rejected", "loses hosts", "already unschedulable",
    "already rejected", "ok"];
  const CELLS = {
    "+": { sign: "\u2713", text: "stays", kind: "kept", rank: 0 },
    "-": { sign: "\u2717", text: "lost", kind: "lost", rank: 2 },
    ".": { sign: "\u00b7", text: "never", kind: "never", rank: 1 },
  };
  const waiting = data.lines.some((line) => line.waiting !== undefined);
  const flavors = data.lines.some((line) => line.flavor);
  const byText = new Intl.Collator("en", { numeric: true }).compare;
  const byNumber = (one, two) => one - two;

  // Text of a tenant's is only ever a text node.
  const make = (tag, kind, ...children) => {
    const element = document.createElement(tag);
    if (kind) element.className = kind;
    element.append(...children);
    return element;
  };
  // Names of traits have no spaces: a line may end behind "_".
  const foldable = (text) => make("bdi", "",
    ...text.split(/(?<=_)/).flatMap((part, index) => (index ? [make("wbr"), part] : [part])));
  const more = (count, what) => ` and ${count.toLocaleString("en")} more ${what}${count === 1 ? "" : "s"}`;
  const number = (value) => make("td", "number", value.toLocaleString("en"));

  const columns = [
    { head: "Images", value: (line) => line.names[0] || "", compare: byText, cell: imagesCell },
    { head: "Count", value: (line) => line.images, compare: byNumber, cell: (line) => number(line.images) },
    ...(flavors ? [{ head: "Flavor", value: (line) => line.flavor, compare: byText,
      cell: (line) => make("td", "", make("bdi", "", line.flavor)) }] : []),
    { head: "Before", value: (line) => line.before, compare: byNumber, cell: (line) => number(line.before) },
    ...(waiting ? [{ head: "Waiting", value: (line) => line.waiting, compare: byNumber,
      cell: (line) => number(line.waiting) }] : []),
    { head: "After", value: (line) => line.after, compare: byNumber, cell: (line) => number(line.after) },
    { head: "Verdict", value: (line) => ORDER.indexOf(line.verdict), compare: byNumber, kind: "wide",
      cell: (line) => make("td", "verdict wide", ...verdictParts(line)) },
    { head: "Lost to", value: (line) => (line.lost[0] || [""])[0], compare: byText, kind: "wide",
      cell: (line) => make("td", "causes wide", causesList(line)) },
    ...data.groups.map((group, index) => ({
      head: group.name,
      more: group.hosts > 1 ? more(group.hosts - 1, "host") : "",
      kind: "group",
      value: (line) => CELLS[line.cells[index]].rank,
      compare: byNumber,
      cell: (line) => hostsCell(CELLS[line.cells[index]]),
    })),
    ...(data.others ? [{ head: `${data.others} other hosts`, kind: "group",
      value: (line) => line.others[0] - line.others[1], compare: byNumber,
      cell: (line) => make("td", "number", `${line.others[0]} \u2192 ${line.others[1]}`) }] : []),
  ];

  function imagesCell(line) {
    const cell = make("th", "", make("bdi", "", line.names[0] || "(not named)"));
    cell.scope = "row";
    if (line.images > 1) {
      const list = make("ul", "", ...line.names.slice(1, NAMES).map((name) => make("li", "", make("bdi", "", name))));
      const left = line.images - Math.min(line.names.length, NAMES);
      if (left > 0) list.append(make("li", "", more(left, "image")));
      cell.append(make("details", "", make("summary", "", more(line.images - 1, "image")), list));
    }
    // Where the columns of the verdict and the causes would be out of sight.
    const causes = line.lost.length || line.combined ? [causesList(line)] : [];
    cell.append(make("div", "narrow causes verdict", ...verdictParts(line), ...causes));
    return cell;
  }

  function verdictParts(line) {
    const kind = line.verdict.startsWith("becomes") ? "strong" : "span";
    const parts = [make(kind, line.verdict === "loses hosts" ? "less" : "", line.verdict)];
    if (line.reason) parts.push(make("br"), make("small", "", make("bdi", "", line.reason)));
    return parts;
  }

  function causesList(line) {
    const list = make("ul", "", ...line.lost.map(([told, because]) =>
      make("li", "", foldable(told), " ", make("small", "", foldable(because)))));
    if (line.combined) list.append(make("li", "", `only together: ${line.combined}`));
    return list;
  }

  function hostsCell({ sign, text, kind }) {
    const shown = make("span", "", sign);
    shown.setAttribute("aria-hidden", "true");
    return make("td", `cell ${kind}`, shown, make("span", "hidden", text));
  }

  const found = data.lines.map((line) => ({
    line,
    text: [line.flavor, line.verdict, line.reason, ...line.lost.flat(), ...line.names].join("\n").toLowerCase(),
  }));
  const find = document.getElementById("find");
  const verdict = document.getElementById("verdict");
  const status = document.getElementById("status");
  const body = document.querySelector("#matrix tbody");
  const [back, next] = ["back", "next"].map((id) => document.getElementById(id));
  let sorted = { column: columns.findIndex((column) => column.head === "Verdict"), down: false };
  let page = 0;
  let shown = [];

  const heads = columns.map((column, index) => {
    const button = make("button", "", make("bdi", "", column.head));
    if (column.more) button.append(make("small", "", column.more));
    button.type = "button";
    button.title = button.textContent;
    const head = make("th", column.kind || "", button);
    head.scope = "col";
    button.addEventListener("click", () => {
      sorted = { column: index, down: sorted.column === index && !sorted.down };
      sort();
      select();
    });
    return head;
  });
  document.querySelector("#matrix thead").append(make("tr", "", ...heads));

  for (const each of ORDER.filter((each) => data.lines.some((line) => line.verdict === each))) {
    const option = make("option", "", each);
    option.value = each;
    verdict.append(option);
  }

  function sort() {
    const { value, compare } = columns[sorted.column];
    const sign = sorted.down ? -1 : 1;
    found.sort((one, two) => sign * compare(value(one.line), value(two.line)));
    heads.forEach((head, index) => {
      if (index === sorted.column) head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  function select() {
    const wanted = find.value.trim().toLowerCase();
    shown = found
      .filter(({ line, text }) => (!verdict.value || line.verdict === verdict.value) && text.includes(wanted))
      .map(({ line }) => line);
    page = 0;
    draw();
  }

  function draw() {
    const first = page * PAGE;
    const rows = shown.slice(first, first + PAGE);
    body.replaceChildren(...rows.map((line) => make("tr", "", ...columns.map((column) => column.cell(line)))));
    const images = shown.reduce((sum, line) => sum + line.images, 0);
    const what = flavors ? "pairs of image and flavor" : "images";
    status.textContent = `${images.toLocaleString("en")} ${what} in ${shown.length.toLocaleString("en")} lines`;
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    document.getElementById("pages").hidden = pages === 1;
    document.getElementById("page").textContent = `Page ${page + 1} of ${pages}`;
    back.disabled = page === 0;
    next.disabled = page + 1 >= pages;
  }

  function turn(by) {
    page += by;
    draw();
    document.querySelector("#matrix").closest(".scroll").scrollTop = 0;
  }
  back.addEventListener("click", () => turn(-1));
  next.addEventListener("click", () => turn(1));
  find.addEventListener("input", select);
  verdict.addEventListener("change", select);
  document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
  sort();
  select();
})();
