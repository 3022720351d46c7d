/**
 * RNNsearch without a library, a sentence at a time and a line for each equation: Bahdanau et al. 2015, appendix A, with
 * the deep output of the preset `phrases_en_fr`. The lecture's page `touch.md` lets a reader change its attention.
 *
 *     const model = await RNNSearch.load((name) => readFile(`phrases_en_fr/${name}`));
 *     model.translate(sourceIds, { start: 2, end: 3, excluded: [0, 2], longest: 30 });
 *
 * Names of axes: S source tokens, T target tokens, H state, M annotation, A attention units, V vocabulary.
 */

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const add = (...vectors) => vectors[0].map((_, i) => vectors.reduce((sum, one) => sum + one[i], 0));
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const row = ({ values, columns }, i) => [...values.subarray(i * columns, (i + 1) * columns)];

/** x W, of a vector and a matrix. */
function times(x, { values, columns }) {
  const y = new Array(columns).fill(0);
  for (let i = 0; i < x.length; i++) for (let j = 0; j < columns; j++) y[j] += x[i] * values[i * columns + j];
  return y;
}

export function softmax(scores) {
  const top = Math.max(...scores);
  const powers = scores.map((one) => Math.exp(one - top));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((one) => one / sum);
}

/** A GRU with the reset gate before the product: z, r, h~ in this order; h = z h + (1 - z) h~. */
function gru(x, h, { kernel, recurrent_kernel, bias }) {
  const n = h.length;
  const input = add(times(x, kernel), bias.values);
  const gates = times(h, recurrent_kernel);
  const [z, r] = [0, n].map((from) => h.map((_, i) => sigmoid(input[from + i] + gates[from + i])));
  const inner = times(h.map((one, i) => r[i] * one), recurrent_kernel);
  return h.map((one, i) => z[i] * one + (1 - z[i]) * Math.tanh(input[2 * n + i] + inner[2 * n + i]));
}

/** Score functions of a query q = W s and a key k = U h, both (A); of the positions j in the source, i in the target. */
export const SCORES = {
  additive: (q, k, { v }) => dot(v, add(q, k).map(Math.tanh)),
  dot: (q, k) => dot(q, k),
  "scaled dot": (q, k) => dot(q, k) / Math.sqrt(q.length),
  position: (q, k, { i, j }) => -((i - j) ** 2),
  even: () => 0,
};
export const TRAINED = { score: "additive", temperature: 1 };

const half = (bits) => {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
};

export class RNNSearch {
  /** @param read  A function from the name of a file to a promise of its bytes. */
  static async load(read) {
    const shapes = JSON.parse(new TextDecoder().decode(await read("weights.json")));
    const bytes = await read("weights.f16");
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const weights = {};
    let at = 0;
    for (const [path, shape] of Object.entries(shapes)) {
      const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
      for (let i = 0; i < values.length; i++, at += 2) values[i] = half(view.getUint16(at, true));
      const [layer, name] = [path.slice(0, path.lastIndexOf("/")), path.slice(path.lastIndexOf("/") + 1)];
      weights[layer] = { ...weights[layer], [name]: { values, columns: shape.at(-1) } };
    }
    return new RNNSearch(weights);
  }

  constructor(weights) {
    this.weights = weights;
  }

  /** Annotations h_j (S, M), keys U h_j (S, A), and the first state s_0 (H) of source ids. */
  encode(ids) {
    const { source_embedding, "encoder/forward_0": forward, "encoder/backward_0": backward, bridge } = this.weights;
    const words = ids.map((id) => row(source_embedding.embeddings, id));
    const read = (x, cell) => {
      let h = new Array(cell.recurrent_kernel.columns / 3).fill(0);
      return x.map((one) => (h = gru(one, h, cell)));
    };
    const after = read(words.toReversed(), backward).toReversed();
    const annotations = read(words, forward).map((h, j) => [...h, ...after[j]]); // h_j = [->h_j ; <-h_j]
    const keys = annotations.map((h) => times(h, this.weights["decoder/attention"].key_kernel));
    return { annotations, keys, state: times(after[0], bridge.kernel).map(Math.tanh) }; // s_0 = tanh(W_s <-h_1)
  }

  /** Scores e_ij (S), weights alpha_ij (S) and context c_i (M), for a state s_{i-1}. */
  attend(state, i, { annotations, keys }, { score, temperature }) {
    const { query_kernel, score_vector } = this.weights["decoder/attention"];
    const query = times(state, query_kernel);
    const scores = keys.map((key, j) => SCORES[score](query, key, { v: score_vector.values, i, j }));
    const weights = softmax(scores.map((one) => one / temperature));
    const context = annotations[0].map((_, m) => weights.reduce((sum, one, j) => sum + one * annotations[j][m], 0));
    return { scores, weights, context };
  }

  /** The state s_i and the logits (V) of the next word, from the last word, s_{i-1} and c_i. */
  step(id, state, context) {
    const { target_embedding, "decoder/cell": cell, readout } = this.weights;
    const word = row(target_embedding.embeddings, id);
    const next = gru([...word, ...context], state, cell);
    const parts = [times(next, readout.state_kernel), times(word, readout.embedding_kernel)];
    const deep = add(...parts, times(context, readout.context_kernel), readout.bias.values).map(Math.tanh);
    const { values, columns } = target_embedding.embeddings; // the output is tied to the target embedding
    const logits = Array.from({ length: values.length / columns }, (_, id) => dot(deep, row({ values, columns }, id)));
    return { next, logits };
  }

  /**
   * The greedy translation: a step for each target token.
   *
   * @returns An array of {id, scores, weights, context, trained, probabilities}: `trained` is the context that the
   *     model's own attention, `TRAINED`, has for the same state.
   */
  translate(ids, { start, end, excluded, longest }, settings = TRAINED) {
    const { state: first, ...memory } = this.encode(ids);
    const steps = [];
    for (let state = first, id = start, i = 0; i < longest && id !== end; i++) {
      const found = this.attend(state, i, memory, settings);
      const trained = this.attend(state, i, memory, TRAINED).context;
      const { next, logits } = this.step(id, state, found.context);
      excluded.forEach((one) => (logits[one] = -Infinity));
      id = i + 1 < longest ? logits.reduce((best, one, n) => (one > logits[best] ? n : best), end) : end;
      steps.push({ ...found, id, trained, probabilities: softmax(logits) });
      state = next;
    }
    return steps;
  }
}
