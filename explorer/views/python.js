// "Copy as Python": code that makes the library repeat the run shown, on the exact arrays, or on its own draws by seed.
function base64(array) {
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  let text = "";
  for (let k = 0; k < bytes.length; k += 32768) text += String.fromCharCode(...bytes.subarray(k, k + 32768));
  return btoa(text);
}

const quoted = (text) => JSON.stringify(String(text));

function arrayCode(name, array, shape, type = "<f8") {
  return `${name} = array("${base64(array)}", "${type}", (${shape.join(", ")},))\n`;
}

function dataCode(name, data) {
  const { n, T, d } = data, flags = [];
  let code = arrayCode(`${name}_tokens`, data.tokens, [n, T, d]) + arrayCode(`${name}_labels`, data.labels, [n]);
  for (const flag of ["mask", "relevant"]) {
    if (!data[flag]) continue;
    code += arrayCode(`${name}_${flag}`, data[flag], [n, T], "u1");
    flags.push(`, ${flag}=${name}_${flag}.astype(bool)`);
  }
  return `${code}${name} = mh.Dataset.from_arrays(${name}_tokens, ${name}_labels${flags.join("")})\n`;
}

const RULE_NAMES = { gd: "GD", normalized: "Normalized", polyak: "Polyak", adam: "Adam" };

// Descent whose step of the attention weights is multiplied; it has a name of its own, because the theory is about the other.
const RESCALED = `class Rescaled(mh.GD):
    name = "gd, W's step times H"
    ratio: float = 1.0

    def move(self, problem, view, memory, axis):
        W, U = view.gradient
        step = self.step_size
        return type(view.gradient)(-step * self.ratio * W, -step * U), memory


`;

function trainCode(run) {
  const { settings: s } = run, steps = run.steps.filter((step) => step <= s.numSteps), rescaled = isRescaled(s);
  const rule = rescaled ? `Rescaled(${s.stepSize}, ratio=${s.heads}.0)` : `mh.${RULE_NAMES[s.optimizer]}(${s.stepSize})`;
  return `run = mh.train(start, data, rule=${rule}, num_steps=${s.numSteps}, loss="${s.loss}",
               test=${run.test ? "test" : "None"}, record=[${steps.join(", ")}], dtype="float64")
print(run)  # train loss at step ${run.last.step} in the page: ${run.last.trainLoss}
print(mh.certify(run, data))  # which statements of the theory speak about this run, and what they say
${s.optimizer === "gd" && !rescaled ? "print(mh.forecast(run, data))  # what is proved about the steps that would follow\n" : "# mh.forecast(run, data) proves what follows for plain gradient descent in the paper's scaling, which this is not\n"}`;
}

function pythonCode(run) {
  const { settings: s, model } = run, { G, T, d, rows } = model;
  const title = `# manyheads explorer: ${run.name}; ${s.numSteps} steps on ${run.train.name.replace(/[^\x20-\x7e]/g, "?")}\n`;
  let code = `${title}# The arrays are the page's own, bit for bit.\nimport base64\n\nimport numpy as np\n\nimport manyheads as mh\n\n
def array(text, kind, shape):
    return np.frombuffer(base64.b64decode(text), kind).reshape(shape)


`;
  if (isRescaled(s)) code += RESCALED;
  code += dataCode("data", run.train) + (run.test ? dataCode("test", run.test) : "");
  code += arrayCode("key_query", model.W, s.decoder === "query" ? [G, d] : [G, d, d]) + arrayCode("readout", model.U, s.decoder === "full" ? [G, T, d] : [G, d]);
  code += `start = mh.MultiHead.create(key_query, readout, multiplicity=[${Array.from(model.counts).join(", ")}], decoder="${s.decoder}")\n`;
  return code + trainCode(run);
}
