// Seeded draws: sfc32 for uniform numbers, Box and Muller for normal ones. This is the page's own generator, not the
// library's; "copy as Python" therefore exports arrays. One stream per purpose: more training data do not change the test data.
const STREAMS = { frame: 1, fresh: 2, train: 3, test: 4, start: 5, teacher: 6 };

function makeRandom(seed, stream) {
  let a = 0x9e3779b9 ^ seed, b = 0x243f6a88 ^ Math.floor(seed / 4294967296), c = 0xb7e15162 ^ STREAMS[stream], counter = 1;
  const bits = () => {
    const sum = (((a + b) | 0) + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + sum) | 0;
    return sum >>> 0;
  };
  for (let i = 0; i < 20; i++) bits();
  const uniform = () => (bits() * 2097152 + (bits() >>> 11) + 0.5) / 9007199254740992; // strictly between 0 and 1
  let spare = null;
  const normal = () => {
    if (spare !== null) { const kept = spare; spare = null; return kept; }
    const size = Math.sqrt(-2 * Math.log(uniform())), angle = 2 * Math.PI * uniform();
    spare = size * Math.sin(angle);
    return size * Math.cos(angle);
  };
  const below = (count) => Math.floor(uniform() * count);
  const shuffled = (count) => {
    const order = Array.from({ length: count }, (_, i) => i);
    for (let i = count - 1; i > 0; i--) {
      const j = below(i + 1);
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  };
  return { uniform, normal, below, shuffled };
}

// Orthonormal rows: Gram and Schmidt, twice, on normal draws.
function randomFrame(d, random) {
  const rows = [];
  while (rows.length < d) {
    const row = Float64Array.from({ length: d }, random.normal);
    for (let pass = 0; pass < 2; pass++) {
      for (const other of rows) {
        let along = 0;
        for (let i = 0; i < d; i++) along += row[i] * other[i];
        for (let i = 0; i < d; i++) row[i] -= along * other[i];
      }
    }
    const size = Math.hypot(...row);
    if (size > 1e-8) rows.push(row.map((x) => x / size));
  }
  return rows;
}
