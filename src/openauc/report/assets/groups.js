"use strict";
// The page on which groups get their names. All that a person did is a list of steps; the rest follows from it.
{
  const { groups, classes, unknown, images, most, letters, key } = data;
  const FIRST = Object.keys(images).length ? 12 : 8, FURTHER = 40;
  const cards = [...document.querySelectorAll(".group")];
  const part = (g, name) => cards[g].querySelector(`.${name}`);
  const home = new Map(groups.flatMap(({ rows }, g) => rows.map((row) => [row, g])));
  const texts = new Map(groups.flatMap(({ rows, texts }) => texts.map((text, i) => [rows[i], text])));
  const rowsOf = (n) => `${count(n)} ${n === 1 ? "row" : "rows"}`;

  // --- steps -------------------------------------------------------------------------------------------------------

  let steps = [];
  let names, mixed, into, moved, dropped;

  const apply = {
    name(g, name) {
      mixed.delete(g);
      if (name) names.set(g, name);
      else names.delete(g);
    },
    mixed(g, on) {
      names.delete(g);
      if (on) mixed.add(g);
      else mixed.delete(g);
    },
    merge(g, other) {
      if (names.has(g) && !names.has(other)) apply.name(other, names.get(g));
      apply.name(g, "");
      into.set(g, other);
    },
    separate(g) { into.delete(g); },
    move(row, g) {
      dropped.delete(row);
      if (g === home.get(row)) moved.delete(row);
      else moved.set(row, g);
    },
    drop(row, on) {
      if (on) dropped.add(row);
      else dropped.delete(row);
    },
  };
  const main = (g) => (into.has(g) ? main(into.get(g)) : g);
  const nameOf = (g) => names.get(main(g)) ?? "";
  const groupOf = (row) => moved.get(row) ?? home.get(row);
  const guests = (g) => [...moved.keys()].filter((row) => moved.get(row) === g);
  const members = (g) => [...groups[g].rows.filter((row) => !moved.has(row)), ...guests(g)];

  function step(...one) {
    const card = document.activeElement.closest(".group");
    steps.push(one);
    refresh();
    if (document.activeElement === document.body) card?.focus({ preventScroll: true }); // what had it is gone
  }

  function undo() {
    if (!steps.length) return;
    const [what, on] = steps.pop();
    refresh();
    cards[what === "move" || what === "drop" ? home.get(on) : on].scrollIntoView({ block: "nearest" });
  }

  // --- rows --------------------------------------------------------------------------------------------------------

  function element(tag, parent, text = "", kind = "") {
    const made = document.createElement(tag);
    made.textContent = text;
    made.className = kind;
    parent.append(made);
    return made;
  }

  function label(button, sign, words) {
    button.textContent = sign;
    button.title = words;
    button.ariaLabel = words;
  }

  const items = cards.map(() => new Map()); // of each card: row -> its element there

  function item(g, row) {
    if (!items[g].has(row)) {
      const li = document.createElement("li"), text = texts.get(row) || `row ${row}`;
      li.tabIndex = -1;
      li.dataset.row = row;
      if (images[row]) Object.assign(element("img", li), { src: images[row], alt: "" });
      const words = element("p", li, short(text, letters));
      words.dir = "auto";
      words.title = `row ${row}`;
      const where = element("small", li), buttons = element("span", li);
      const move = element("button", buttons, "", "move"), drop = element("button", buttons, "", "drop");
      move.type = drop.type = "button";
      move.addEventListener("click", () => {
        if (moved.has(row)) step("move", row, home.get(row));
        else choose(`Move row ${row} to`, g, (other) => step("move", row, other));
      });
      drop.addEventListener("click", () => step("drop", row, !dropped.has(row)));
      items[g].set(row, { li, where, move, drop });
    }
    return items[g].get(row).li;
  }

  function showRow(g, row) {
    const { li, where, move, drop } = items[g].get(row), away = groupOf(row) !== g, out = dropped.has(row);
    li.classList.toggle("off", away || out);
    where.textContent = out ? "left out" : away ? `now in group ${groupOf(row)}` : home.get(row) !== g ? `from group ${home.get(row)}` : "";
    label(move, ...(moved.has(row) ? ["↩", "Move back"] : ["→", "Move to another group"]));
    label(drop, ...(out ? ["↩", "Put back"] : ["✕", "Leave out"]));
    move.disabled = out || groups.length < 2;
    drop.disabled = away;
  }

  function further(g, n) {
    const list = part(g, "own"), { rows } = groups[g];
    const end = Math.min(list.children.length + n, most, rows.length);
    for (const row of rows.slice(list.children.length, end)) {
      list.append(item(g, row));
      showRow(g, row);
    }
    const left = Math.min(most, rows.length) - end;
    part(g, "further").hidden = !left;
    part(g, "further").textContent = `Show ${Math.min(FURTHER, left)} more`;
    part(g, "rest").textContent = rows.length > end ? `${left ? "of" : "and"} ${count(rows.length - end)} more ${rows.length - end === 1 ? "row" : "rows"} like these` : "";
  }

  // --- what is shown -------------------------------------------------------------------------------------------------

  const plain = (name) => name.toLowerCase().replace(/[\s_-]+/g, "");
  const alike = (name, other) => name !== other && plain(name) === plain(other);

  // What the name of a group means.
  function meaning(g) {
    const own = main(g), name = nameOf(g);
    if (own !== g) return `Merged with group ${own}.`;
    if (mixed.has(g)) return "Its rows are left out.";
    const joined = groups.map((_, other) => other).filter((other) => other !== g && (main(other) === g || (name && nameOf(other) === name)));
    const beside = joined.length ? ` Together with group ${joined.join(", ")}.` : "";
    if (!name) return beside.trim();
    if (classes.includes(name)) return `Joins the known class.${beside}`;
    const near = classes.find((label) => alike(label, name));
    const other = groups.findIndex((_, other) => alike(nameOf(other), name));
    const about = near !== undefined ? ` There is a known class ${near}.` : other >= 0 ? ` Group ${other} is called ${nameOf(other)}.` : "";
    return `A new class.${about}${beside}`;
  }

  function showCard(g) {
    const own = main(g), name = nameOf(g), input = part(g, "naming");
    input.value = name;
    input.removeAttribute("aria-invalid");
    input.disabled = own !== g;
    part(g, "state").textContent = meaning(g);
    part(g, "mixed").setAttribute("aria-pressed", mixed.has(own));
    part(g, "mixed").disabled = own !== g;
    for (const button of cards[g].querySelectorAll(".belongs")) {
      button.setAttribute("aria-pressed", button.dataset.label === name);
      button.disabled = own !== g;
    }
    part(g, "merge").textContent = own === g ? "Merge with…" : "Separate";
    part(g, "merge").disabled = groups.length < 2;
    cards[g].classList.toggle("done", name !== "" || mixed.has(own));
    const list = part(g, "guests"), visitors = guests(g).map((row) => item(g, row));
    if (visitors.length !== list.children.length || visitors.some((li, i) => li !== list.children[i])) list.replaceChildren(...visitors);
    for (const row of items[g].keys()) showRow(g, row);
  }

  const KINDS = { "new class": "var(--accent)", "known class": "var(--right)", "not one thing": "var(--unknown)", "no name yet": "var(--line)" };
  const kind = (g) => (mixed.has(main(g)) ? "not one thing" : !nameOf(g) ? "no name yet" : classes.includes(nameOf(g)) ? "known class" : "new class");
  const overview = chart("overview", (width) => {
    const bars = groups.map(({ rows }, g) => ({ g, n: rows.length, kind: kind(g), name: nameOf(g) }));
    return Plot.plot({
      width, height: 130, marginLeft: 40, marginBottom: 22, marginTop: 8, style: STYLE,
      ariaLabel: "Rows by group", ariaDescription: bars.map(({ g, n, kind }) => `group ${g}: ${rowsOf(n)}, ${kind}`).join("; "),
      x: { type: "band", label: null, tickSize: 0, domain: bars.map(({ g }) => g), tickFormat: (g) => (width > 24 * bars.length || g % 5 === 0 ? g : ""), padding: 0.15 },
      y: { label: null, tickSize: 0, ticks: 3, grid: true },
      marks: [Plot.barY(bars, { x: "g", y: "n", fill: (one) => KINDS[one.kind], href: ({ g }) => `#group-${g}`, title: ({ g, n, name }) => `group ${g}${name && `, ${name}`}: ${rowsOf(n)}` })],
      color: { type: "identity" },
    });
  });

  function refresh() {
    [names, mixed, into, moved, dropped] = [new Map(), new Set(), new Map(), new Map(), new Set()];
    for (const [what, on, to] of steps) apply[what](on, to);
    try {
      localStorage.setItem(key, JSON.stringify(steps));
    } catch {
      $("no_draft").hidden = false; // a page from disk may not be allowed to
    }
    const known = [...new Set([...names.values(), ...classes])];
    $("names").replaceChildren(...known.map((name) => Object.assign(document.createElement("option"), { value: name })));
    cards.forEach((_, g) => showCard(g));
    const named = groups.filter((_, g) => nameOf(g)).length, out = lines().filter(([, , label]) => !label).length;
    $("progress").textContent = `${named} of ${groups.length} groups named, ${count(lines().length - out)} of ${rowsOf(home.size)}${out ? `; ${count(out)} left out` : ""}`;
    $("undo").disabled = !steps.length;
    overview();
  }

  // --- naming and choosing -------------------------------------------------------------------------------------------

  // Take the name that is typed; false where it is refused.
  function take(g) {
    const input = part(g, "naming"), name = input.value.trim();
    if (name === unknown || (name && alike(name, unknown) && !classes.includes(name))) {
      input.setAttribute("aria-invalid", "true");
      part(g, "state").textContent = `“${unknown}” is the answer of the model for no class; choose another name.`;
      return false;
    }
    if (name !== nameOf(g)) step("name", g, name);
    return true;
  }

  let chosen;
  function choose(question, g, act) {
    chosen = act;
    $("asked").textContent = question;
    const others = groups.map((_, other) => other).filter((other) => other !== g && main(other) === other && main(g) !== other);
    $("others").replaceChildren(...others.map((other) => {
      const about = nameOf(other) || texts.get(groups[other].rows[0]) || "";
      return new Option(`Group ${other}, ${rowsOf(groups[other].rows.length)}${about && `: ${short(about, 40)}`}`, other);
    }));
    $("others").selectedIndex = 0;
    $("choose").showModal();
    $("others").focus();
  }
  function answer() {
    $("choose").close();
    if ($("others").value) chosen(Number($("others").value));
  }
  $("take").addEventListener("click", answer);
  $("others").addEventListener("dblclick", answer);
  $("leave").addEventListener("click", () => $("choose").close());

  cards.forEach((card, g) => {
    part(g, "naming").addEventListener("change", () => take(g));
    part(g, "mixed").addEventListener("click", () => step("mixed", g, !mixed.has(g)));
    part(g, "merge").addEventListener("click", () => {
      if (into.has(g)) step("separate", g);
      else choose(`Merge group ${g} with`, g, (other) => step("merge", g, other));
    });
    part(g, "further").addEventListener("click", () => further(g, FURTHER));
    for (const button of card.querySelectorAll(".belongs")) {
      button.addEventListener("click", () => step("name", g, button.dataset.label === nameOf(g) ? "" : button.dataset.label));
    }
  });

  // --- saving --------------------------------------------------------------------------------------------------------

  // Lines of the file: what has a name, and what was taken out.
  function lines() {
    return groups.flatMap((_, g) => {
      const label = nameOf(g), note = mixed.has(main(g)) ? "not one thing" : "";
      return members(g).filter((row) => label || note || dropped.has(row)).map((row) => {
        const text = texts.get(row) ?? "";
        return [row, g, dropped.has(row) ? "" : label, dropped.has(row) ? "left out" : note, text.length > letters ? "" : text];
      });
    });
  }

  function save() {
    const found = lines(), named = found.filter(([, , label]) => label).length;
    if (!named) {
      $("progress").textContent = "Nothing is named yet: name a group before you save.";
      return;
    }
    const quoted = (value) => (/[",\r\n]|^\s|\s$/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    const inert = (value) => (/^'*[=+@\t\r-]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value); // no formula in a spreadsheet
    const file = [["row", "group", "label", "note", "text"], ...found].map((line) => `${line.map((value) => quoted(inert(String(value)))).join(",")}\r\n`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(file, { type: "text/csv;charset=utf-8" }));
    link.download = "labels.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    $("progress").textContent = `Saved ${rowsOf(named)} with a name; see below what comes next.`;
  }

  // --- keys ----------------------------------------------------------------------------------------------------------

  function go(list, at, by) {
    list[at < 0 ? 0 : Math.min(Math.max(at + by, 0), list.length - 1)]?.focus();
  }

  function keys(event) {
    const at = document.activeElement, card = at.closest(".group"), g = cards.indexOf(card), li = at.closest(".rows li");
    const move = (by) => go(cards, g, by);
    const row = (by) => card && go([...card.querySelectorAll(".rows li")], [...card.querySelectorAll(".rows li")].indexOf(li), by);
    const press = (place, name) => place?.querySelector(`.${name}`)?.click();
    const belongs = (i) => card?.querySelectorAll(".belongs")[i]?.click();
    if ($("choose").open) {
      if (event.key === "Enter" && at === $("others")) return answer;
      return null;
    }
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") {
      return at.matches(".naming") && at.value.trim() !== nameOf(g) ? null : undo; // the browser's own, while one types
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return null;
    if (at.matches(".naming")) {
      return { Enter: () => take(g) && card.focus(), Escape: () => { showCard(g); card.focus(); } }[event.key];
    }
    if (event.key === "Enter") return card && !at.matches("button") ? () => part(g, "naming").focus() : null;
    return {
      ArrowDown: () => move(1), j: () => move(1), ArrowUp: () => move(-1), k: () => move(-1),
      ArrowRight: () => row(1), l: () => row(1), ArrowLeft: () => row(-1), h: () => row(-1),
      1: () => belongs(0), 2: () => belongs(1), 3: () => belongs(2), 4: () => belongs(3),
      n: () => press(card, "mixed"), m: () => press(card, "merge"), e: () => press(card, "further"),
      x: () => press(li, "drop"), Delete: () => press(li, "drop"), v: () => press(li, "move"),
      u: undo, s: save,
    }[event.key];
  }
  document.addEventListener("keydown", (event) => {
    const act = keys(event);
    if (!act) return;
    event.preventDefault();
    act();
  });

  $("undo").addEventListener("click", undo);
  $("save").addEventListener("click", save);
  copies($("copy"), $("next_command"));

  try {
    steps = JSON.parse(localStorage.getItem(key)) ?? [];
  } catch {
    steps = [];
  }
  refresh();
  cards.forEach((_, g) => further(g, FIRST));
}
