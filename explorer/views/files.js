// Your own data, read by the page itself: an .npz with `tokens` (n, T, d) and `labels`, or a .csv with one row per token.
// Nothing leaves the page. What is wrong is said in one sentence, with the line and the column where there is one.
const MOST = { bytes: 2e8, sequences: 500, tokens: 64, width: 64, probeWidth: 1024 };
const WANTED = "an .npz file with the arrays tokens (sequences, tokens, numbers) and labels, or a .csv file with one row per token and the columns sequence, label and one for each number";

async function readData(file) {
  if (file.size > MOST.bytes) throw new Error(`${file.name} has ${number(Math.round(file.size / 1e6))} MB; the page reads 200 MB at most. The library reads it: manyheads train ${file.name}`);
  if (/\.npz$/i.test(file.name)) return fitted(await fromNpz(new Uint8Array(await file.arrayBuffer())), file.name);
  if (/\.csv$/i.test(file.name)) return fitted(fromCsv(await file.text()), file.name);
  throw new Error(`${file.name} cannot be read here; choose ${WANTED}.`);
}

// What the page can show of it, and sentences about what was left out.
function fitted({ tokens, shape, labels, mask, relevant }, name) {
  const [all, long, d] = shape, said = [];
  if (d > MOST.probeWidth) throw new Error(`A token has ${number(d)} numbers; the page takes ${number(MOST.probeWidth)} at most. The library has no such limit.`);
  const names = [...new Set(labels)].sort((a, b) => (typeof a === "number" && typeof b === "number" ? a - b : a < b ? -1 : 1));
  if (names.length !== 2) throw new Error(`The labels have ${number(names.length)} different values; the page needs exactly two.`);
  const n = Math.min(all, MOST.sequences), T = Math.min(long, MOST.tokens);
  if (n < 8) throw new Error(`The file has ${number(n)} sequences; the page needs 8 at least.`);
  if (n < all) said.push(`The file has ${number(all)} sequences; the page takes ${number(n)} of them, evenly spaced.`);
  if (T < long) said.push(`Of ${number(long)} tokens of a sequence it takes the first ${number(T)}.`);
  const data = emptyOwn(n, T, d, name, names.map(String), mask, relevant);
  for (let i = 0; i < n; i++) {
    const from = Math.floor(i * all / n);
    data.labels[i] = labels[from] === names[1] ? 1 : -1;
    data.tokens.set(tokens.subarray(from * long * d, (from * long + T) * d), i * T * d);
    for (const flag of ["mask", "relevant"]) if (data[flag]) data[flag].set(Uint8Array.from(flag === "mask" ? mask.subarray(from * long, from * long + T) : relevant.subarray(from * long, from * long + T), Number), i * T);
  }
  const bad = data.tokens.findIndex((x) => !Number.isFinite(x));
  if (bad >= 0) throw new Error(`Number ${bad % d + 1} of token ${Math.floor(bad / d) % T + 1} of sequence ${Math.floor(bad / d / T) + 1} is not a finite number; correct it.`);
  return { data, said };
}

function emptyOwn(n, T, d, name, labelNames, mask, relevant) {
  return { n, T, d, name, labelNames, tokens: new Float64Array(n * T * d), labels: new Float64Array(n), pattern: new Int16Array(n * T).fill(-1),
    mask: mask ? new Uint8Array(n * T) : null, relevant: relevant ? new Uint8Array(n * T) : null };
}

// An .npz is a ZIP archive of arrays.
async function fromNpz(bytes) {
  const entries = zipEntries(bytes), array = async (...names) => {
    const name = names.find((one) => entries.has(`${one}.npy`));
    return name ? npy(await unpacked(bytes, entries.get(`${name}.npy`), name), name) : null;
  };
  const found = [...entries.keys()].map((name) => name.replace(/\.npy$/, "")).slice(0, 8).join(", ") || "none";
  const tokens = await array("tokens", "X"), labels = await array("labels", "y");
  if (!tokens || !labels) throw new Error(`The file has the arrays ${found}; it needs tokens and labels.`);
  if (tokens.shape.length !== 3) throw new Error(`tokens has the shape (${tokens.shape.join(", ")}); it must be (sequences, tokens, numbers).`);
  if (labels.values.length !== tokens.shape[0]) throw new Error(`There are ${number(labels.values.length)} labels for ${number(tokens.shape[0])} sequences; each needs one.`);
  if (typeof tokens.values[0] === "string") throw new Error("tokens holds texts; it must hold numbers.");
  const flags = {};
  for (const name of ["mask", "relevant"]) {
    const one = await array(name);
    if (one && one.shape.join() !== tokens.shape.slice(0, 2).join()) throw new Error(`${name} has the shape (${one.shape.join(", ")}); it must be (${tokens.shape.slice(0, 2).join(", ")}).`);
    flags[name] = one && Float64Array.from(one.values, Number);
  }
  return { tokens: Float64Array.from(tokens.values), shape: tokens.shape, labels: Array.from(labels.values, (x) => (typeof x === "string" ? x : Number(x))), ...flags };
}

const DAMAGED = "The file is damaged, or is no .npz file: write it with numpy.savez.";

// Name -> where its bytes are, from the table at the end of the archive.
function zipEntries(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), entries = new Map();
  let end = bytes.length - 22;
  while (end >= 0 && end > bytes.length - 65558 && view.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0 || view.getUint32(end, true) !== 0x06054b50) throw new Error(DAMAGED);
  let at = view.getUint32(end + 16, true);
  for (let k = view.getUint16(end + 10, true); k > 0; k--) {
    if (at + 46 > bytes.length || view.getUint32(at, true) !== 0x02014b50) throw new Error(DAMAGED);
    const length = view.getUint16(at + 28, true), name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + length));
    entries.set(name, { method: view.getUint16(at + 10, true), size: view.getUint32(at + 20, true), whole: view.getUint32(at + 24, true), place: view.getUint32(at + 42, true) });
    at += 46 + length + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
  }
  return entries;
}

async function unpacked(bytes, { method, size, whole, place }, name) {
  if (whole > 4 * MOST.bytes) throw new Error(`The array ${name} has ${number(Math.round(whole / 1e6))} MB when it is unpacked; the page takes 800 MB at most.`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (place + 30 > bytes.length || view.getUint32(place, true) !== 0x04034b50) throw new Error(DAMAGED);
  const from = place + 30 + view.getUint16(place + 26, true) + view.getUint16(place + 28, true), packed = bytes.subarray(from, from + size);
  if (method === 0) return packed;
  if (method !== 8) throw new Error(`The array ${name} is compressed in a way that the page cannot read; write the file with numpy.savez.`);
  try {
    return new Uint8Array(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer());
  } catch { throw new Error(DAMAGED); }
}

const READERS = { f8: [8, "getFloat64"], f4: [4, "getFloat32"], i8: [8, "getBigInt64"], u8: [8, "getBigUint64"], i4: [4, "getInt32"], u4: [4, "getUint32"],
  i2: [2, "getInt16"], u2: [2, "getUint16"], i1: [1, "getInt8"], u1: [1, "getUint8"], b1: [1, "getUint8"] };

// NumPy's own format of one array: a magic word, a header in Python's notation, and the numbers.
function npy(bytes, name) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 12 || bytes[0] !== 0x93 || new TextDecoder().decode(bytes.subarray(1, 6)) !== "NUMPY") throw new Error(DAMAGED);
  const wide = bytes[6] > 1, start = wide ? 12 : 10, begin = start + (wide ? view.getUint32(8, true) : view.getUint16(8, true));
  const header = new TextDecoder().decode(bytes.subarray(start, begin)), [, order, kind] = /'descr':\s*'([<>|=])([a-zA-Z]\d+)'/.exec(header) || [];
  const shape = (/'shape':\s*\(([^)]*)\)/.exec(header)?.[1] || "").split(",").map((x) => x.trim()).filter(Boolean).map(Number), count = shape.reduce((a, b) => a * b, 1);
  if (!kind || /^[OV]/.test(kind)) throw new Error(`The array ${name} holds Python objects or records, which are never loaded; save plain numbers.`);
  const values = kind[0] === "U" ? texts(view, begin, count, Number(kind.slice(1)), order) : numbers(view, begin, count, READERS[kind], order, name, kind);
  return { shape, values: header.includes("'fortran_order': True") ? byRows(values, shape) : values };
}

function numbers(view, begin, count, reader, order, name, kind) {
  if (!reader) throw new Error(`The array ${name} has the type ${kind}; save it as float64, float32 or whole numbers.`);
  const [size, get] = reader, out = new Float64Array(count);
  if (begin + count * size > view.byteLength) throw new Error(DAMAGED);
  for (let k = 0; k < count; k++) out[k] = Number(view[get](begin + k * size, order !== ">"));
  return out;
}

// Texts of fixed length, four bytes a letter.
function texts(view, begin, count, length, order) {
  if (begin + count * length * 4 > view.byteLength) throw new Error(DAMAGED);
  return Array.from({ length: count }, (_, k) => {
    let text = "";
    for (let j = 0; j < length; j++) { const code = view.getUint32(begin + 4 * (k * length + j), order !== ">"); if (code && code <= 0x10ffff) text += String.fromCodePoint(code); }
    return text;
  });
}

function byRows(values, shape) {
  const out = values.slice(), place = shape.map(() => 0);
  for (let k = 0; k < values.length; k++) {
    out[place.reduce((sum, p, axis) => sum * shape[axis] + p, 0)] = values[k];
    for (let axis = 0; axis < shape.length; axis++) { if (++place[axis] < shape[axis]) break; place[axis] = 0; }
  }
  return out;
}

// A table: one row per token, the rows of a sequence share its name and its label.
function fromCsv(text) {
  const rows = csvRows(text), [, names] = rows[0] || [0, []];
  const find = (name) => { const k = names.indexOf(name); if (k < 0) throw new Error(`Line 1 names the columns ${names.slice(0, 8).join(", ") || "none"}; a column “${name}” is needed. The page reads ${WANTED}.`); return k; };
  const sequence = find("sequence"), label = find("label"), columns = names.map((_, k) => k).filter((k) => k !== sequence && k !== label);
  if (!columns.length) throw new Error("The table has no columns of numbers beside sequence and label; add some.");
  const groups = new Map();
  for (const [line, cells] of rows.slice(1)) {
    if (cells.length !== names.length) throw new Error(`Line ${number(line)} has ${cells.length} cells; line 1 names ${names.length} columns.`);
    const group = groups.get(cells[sequence]) || { label: cells[label], tokens: [] };
    if (!cells[label]) throw new Error(`Line ${number(line)}, column label: the cell is empty; every sequence needs a label.`);
    if (group.label !== cells[label]) throw new Error(`Line ${number(line)}, column label: “${cells[label].slice(0, 20)}”, but the sequence “${cells[sequence].slice(0, 20)}” began with “${group.label.slice(0, 20)}”.`);
    group.tokens.push(columns.map((k) => {
      const value = cells[k].trim() === "" ? NaN : Number(cells[k]);
      if (!Number.isFinite(value)) throw new Error(`Line ${number(line)}, column ${names[k] || k + 1}: “${cells[k].slice(0, 20)}” is not a number; correct it, or leave the column out.`);
      return value;
    }));
    groups.set(cells[sequence], group);
  }
  return ofGroups([...groups.values()], columns.length);
}

function ofGroups(groups, d) {
  if (!groups.length) throw new Error("The table has no rows below the names of its columns; add some.");
  const n = groups.length, T = Math.max(...groups.map(({ tokens }) => tokens.length)), even = groups.every(({ tokens }) => tokens.length === T);
  const tokens = new Float64Array(n * T * d), mask = even ? null : new Float64Array(n * T), numeric = groups.every(({ label }) => Number.isFinite(Number(label)));
  groups.forEach(({ tokens: rows }, i) => rows.forEach((row, t) => { tokens.set(row, (i * T + t) * d); if (mask) mask[i * T + t] = 1; }));
  return { tokens, shape: [n, T, d], labels: groups.map(({ label }) => (numeric ? Number(label) : label)), mask, relevant: null };
}

// [line number, cells] of every row that is not empty; a quoted cell may hold commas, quotes and ends of lines.
function csvRows(text) {
  const rows = [];
  let cells = [], cell = "", quoted = false, line = 1, first = 1;
  const close = () => { cells.push(cell); if (cells.length > 1 || cell.trim()) rows.push([first, cells]); cells = []; cell = ""; };
  for (let k = text.charCodeAt(0) === 0xfeff ? 1 : 0; k < text.length; k++) {
    const c = text[k];
    if (c === "\n") line++;
    if (quoted) { if (c !== '"') cell += c; else if (text[k + 1] === '"') { cell += c; k++; } else quoted = false; }
    else if (c === '"') quoted = true;
    else if (c === ",") { cells.push(cell); cell = ""; }
    else if (c === "\n") { close(); first = line; }
    else if (c !== "\r") cell += c;
  }
  if (quoted) throw new Error(`Line ${number(first)} opens a quoted cell that never ends.`);
  close();
  return rows;
}
