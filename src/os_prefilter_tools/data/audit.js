
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 100;
  const NAMES = 100;
  const CELLS = {
    "+": { sign: "\u2713", text: "stays", kind: "kept", rank: 0 },
    "-": { sign: "\u2717", text: "lost", kind: "lost", rank: 2 },
    ".": { sign: "\u00b7", text: "never", kind: "never", rank: 1 },
  };
  const some = (name) => data.lines.some((line) => line[name] !== undefined && line[name] !== "");
  const byText = new Intl.Collator("en", { numeric: true }).compare;
  const byNumber = (one, two) => one - two;

  // Text of a tenant's is only ever a text node.
  const make = (tag, kind, ...children) => {
    const element = document.createElement(tag);
    if (kind) element.className = kind;
    element.append(...children);
    return element;
  };
  // Names of traits and hosts have no spaces: a line may end behind "_", "." and "-".
  const foldable = (text) => make("bdi", "",
    ...text.split(/(?<=[-_.])/).flatMap((part, index) => (index ? [make("wbr"), part] : [part])));
  const more = (count, what) => ` and ${count.toLocaleString("en")} more ${what}${count === 1 ? "" : "s"}`;

  const texts = (head, name) => ({ head, value: (line) => line[name], compare: byText,
    cell: (line) => make("td", "text", foldable(line[name])) });
  const numbers = (head, name) => ({ head, value: (line) => line[name], compare: byNumber,
    cell: (line) => make("td", line[name] || data.kind === "images" ? "number" : "number bad",
      line[name].toLocaleString("en")) });
  const verdicts = { head: "Verdict", value: (line) => data.verdicts.indexOf(line.verdict), compare: byNumber,
    kind: "wide", cell: (line) => make("td", "verdict wide", ...verdictParts(line)) };
  const named = { head: data.kind === "images" ? "Images" : "Servers", value: (line) => line.names[0] || "",
    compare: byText, cell: namesCell };
  const columns = data.kind === "images" ? [
    named,
    numbers("Count", "count"),
    ...(some("flavor") ? [texts("Flavor", "flavor")] : []),
    numbers("Before", "before"),
    ...(some("waiting") ? [numbers("Waiting", "waiting")] : []),
    numbers("After", "after"),
    verdicts,
    { head: "Lost to", value: (line) => (line.lost[0] || [""])[0], compare: byText, kind: "wide",
      cell: (line) => make("td", "causes wide", detailsList(line)) },
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
  ] : [
    named,
    numbers("Count", "count"),
    texts("Host", "host"),
    texts("Project", "project"),
    numbers("Now", "now"),
    numbers("If died", "if_died"),
    ...(some("without") ? [numbers("Without", "without")] : []),
    verdicts,
    { head: "Destinations", value: (line) => line.now, compare: byNumber, kind: "wide",
      cell: (line) => make("td", "causes wide", detailsList(line)) },
  ];

  function namesCell(line) {
    const cell = make("th", "", make("bdi", "", line.names[0] || "(not named)"));
    cell.scope = "row";
    if (line.count > 1) {
      const what = data.kind.slice(0, -1);
      const list = make("ul", "", ...line.names.slice(1, NAMES).map((name) => make("li", "", make("bdi", "", name))));
      const left = line.count - Math.min(line.names.length, NAMES);
      if (left > 0) list.append(make("li", "", more(left, what)));
      cell.append(make("details", "", make("summary", "", more(line.count - 1, what)), list));
    }
    // Where the columns of the verdict and the details would be out of sight.
    const details = detailsList(line);
    cell.append(make("div", "narrow causes verdict", ...verdictParts(line), ...(details.children.length ? [details] : [])));
    return cell;
  }

  function verdictParts(line) {
    const kind = data.worst.includes(line.verdict) ? "strong" : "span";
    const parts = [make(kind, line.verdict === "loses hosts" ? "less" : "", line.verdict)];
    if (line.reason) parts.push(make("br"), make("small", "", foldable(line.reason)));
    return parts;
  }

  // What an image loses hosts to, or where a server may go.
  function detailsList(line) {
    const list = make("ul", "", ...(line.lost || []).map(([told, because]) =>
      make("li", "", foldable(told), " ", make("small", "", foldable(because)))));
    if (line.combined) list.append(make("li", "", `only together: ${line.combined}`));
    list.append(...(line.hosts || []).map((name) => make("li", "", make("bdi", "", name))));
    if (line.hosts && line.now > line.hosts.length) list.append(make("li", "", more(line.now - line.hosts.length, "host")));
    return list;
  }

  function hostsCell({ sign, text, kind }) {
    const shown = make("span", "", sign);
    shown.setAttribute("aria-hidden", "true");
    return make("td", `cell ${kind}`, shown, make("span", "hidden", text));
  }

  const found = data.lines.map((line) => ({
    line,
    text: [line.flavor, line.host, line.project, line.verdict, line.reason, ...(line.lost || []).flat(), ...line.names]
      .join("\n").toLowerCase(),
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

  for (const each of data.verdicts.filter((each) => data.lines.some((line) => line.verdict === each))) {
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
    const count = shown.reduce((sum, line) => sum + line.count, 0);
    const what = some("flavor") ? "pairs of image and flavor" : data.kind;
    status.textContent = `${count.toLocaleString("en")} ${what} in ${shown.length.toLocaleString("en")} lines`;
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
