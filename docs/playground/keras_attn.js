/**
 * Translation without Python: what `keras_attn.runtime` does, a text at a time. Pronunciation is in g2p.js.
 *
 *     import * as ort from "onnxruntime-web"; // or "onnxruntime-node"
 *     import { readFile } from "node:fs/promises";
 *     import { Translator } from "./keras_attn.js";
 *
 *     const translator = await Translator.load(ort, (name) => readFile(`en-fr.onnx/${name}`));
 *     console.log((await translator.generate("We sleep.")).text);
 *
 * The folder is that of `keras-attn export RUN FOLDER --format onnx`. A browser reads it with `reader("en-fr.onnx")`.
 * Names of axes: B batch, K hypotheses, S source tokens, T target tokens, V vocabulary.
 */

export const BLANKS = /^[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*$/u; // Unicode's White_Space
const BLANK_MARK = "▁"; // SentencePiece's sign for a blank inside a piece
const LONGEST = 100_000; // tokens of a translation, whatever a ratio gives
const UNKNOWN_TRAINED_LENGTH = 500; // tokens, of a model that does not say
const NORMS = new Map([
  ["gnmt", (length) => (5 + length) / 6],
  ["average", (length) => length],
  ["none", () => 1],
]);
const isWhole = (value, least, most) => Number.isInteger(value) && least <= value && value <= most;
const utf8 = (text) => [...new TextEncoder().encode(text)];
const text = (bytes) => new TextDecoder("utf-8", { fatal: true }).decode(bytes);

/** Returns a function that fetches a file of a folder by its name, as bytes. */
export function reader(folder) {
  return async (name) => {
    const address = `${folder}/${name}`;
    const answer = await fetch(address).catch((error) => fail("a file at", address, error.message));
    if (!answer.ok) fail("a file at", address, `status ${answer.status}`);
    return new Uint8Array(await answer.arrayBuffer());
  };
}

/** Throws the error of all refusals. */
export function fail(expected, name, received) {
  throw new Error(`Expected ${expected} ${name}. Received: ${received}`);
}

/** Text to ids and back, for the levels "bpe", "word", "symbol", "character" and "letter" of `keras_attn.Tokenizer`. */
export class Tokenizer {
  /**
   * @param read  A function from the name of a file to a promise of its bytes.
   * @param folder  The name of the tokenizer's folder.
   */
  static async load(read, folder) {
    const manifest = JSON.parse(text(await read(`${folder}/tokenizer.json`)));
    const known = ["bpe", "word", "symbol", "character", "letter"].includes(manifest.level);
    if (!known || (manifest.level === "bpe" && manifest.special_ids)) {
      fail("a tokenizer that was trained by keras_attn, in", folder, `level ${manifest.level} of another program`);
    }
    if (manifest.level !== "bpe") return new Tokenizer(manifest, lookupModel(manifest));
    return new Tokenizer(manifest, pieceModel(await read(`${folder}/sentencepiece.model`), manifest.lowercase));
  }

  constructor({ level, special_ids }, { vocabulary, encode, join, pieces }) {
    this.special = { pad: 0, unknown: 1, start: 2, end: 3, ...special_ids };
    Object.assign(this, { level, vocabulary, join, pieces });
    this.encode = (text) => encode(text, this.special);
  }

  /** Returns the text of ids up to the end. Pad and start ids are skipped. */
  decode(ids) {
    const { pad, start, end } = this.special;
    const last = ids.indexOf(end);
    return this.join((last < 0 ? ids : ids.slice(0, last)).filter((id) => id !== pad && id !== start));
  }
}

/** Tokens that are looked up: runs between blanks, characters, or letters and tags such as <2fr>. */
function lookupModel({ level, vocabulary, character_table, unicode_form }) {
  const separator = level === "character" ? "" : " ";
  const pieces = (text) => {
    const characters = [...(unicode_form ? text.normalize(unicode_form) : text)];
    const mapped = characters.map((one) => character_table[one] ?? one).join("");
    if (level === "letter") return mapped.match(/<2[^ >]+>|[^ ]/gu) ?? [];
    return separator ? mapped.split(separator).filter((token) => token) : [...mapped];
  };
  const ids = new Map(vocabulary.map((token, id) => [token, id]));
  const encode = (text, { pad, unknown, start, end }) => {
    const found = pieces(text).map((token) => ids.get(token) ?? unknown);
    return found.map((id) => ([pad, start, end].includes(id) ? unknown : id));
  };
  return { vocabulary, pieces, encode, join: (ids) => ids.map((id) => vocabulary[id]).join(separator) };
}

/** The numbers and byte strings of a message in protobuf: [field, value], as far as SentencePiece's model has them. */
function* fields(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 0;
  const number = () => {
    for (let value = 0, factor = 1; ; factor *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const key = number();
    const kind = key % 8;
    if (kind === 0) yield [key >> 3, number()];
    else if (kind === 5) yield [key >> 3, view.getFloat32((at += 4) - 4, true)];
    else if (kind === 1) at += 8;
    else if (kind === 2) {
      const length = number();
      yield [key >> 3, bytes.subarray(at, (at += length))];
    } else fail("a model of", "SentencePiece", "another file");
  }
}

/** Byte-pair encoding with a SentencePiece model, without a blank before the text and with all of its blanks. */
function pieceModel(bytes, lowercase) {
  const [NORMAL, TAG, BYTE] = [1, 4, 6]; // types of pieces
  const all = [...fields(bytes)].filter(([field]) => field === 1);
  const entries = all.map(([, message]) => ({ 3: NORMAL, ...Object.fromEntries(fields(message)) }));
  const vocabulary = entries.map((entry) => text(entry[1]));
  const ids = new Map(vocabulary.map((piece, id) => [piece, id]));
  const scores = new Map(); // of pieces that merges make
  entries.forEach((entry, id) => [NORMAL, TAG].includes(entry[3]) && scores.set(vocabulary[id], entry[2] ?? 0));
  const tags = vocabulary.filter((_, id) => entries[id][3] === TAG).sort((a, b) => b.length - a.length);
  const escaped = tags.map((tag) => tag.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"));
  const symbols = new RegExp([...escaped, "[^]"].join("|"), "gu");
  const isByte = (id) => entries[id][3] === BYTE;
  const byteOf = (id) => parseInt(vocabulary[id].slice(3, 5), 16); // of "<0xE2>"
  const byteIds = new Map([...ids.values()].filter(isByte).map((id) => [byteOf(id), id]));

  const pieces = (text) => {
    const lower = lowercase ? [...text].map((one) => [...one.toLowerCase()][0]).join("") : text;
    const found = lower.replaceAll(" ", BLANK_MARK).match(symbols) ?? [];
    const frozen = (piece) => tags.length > 0 && tags.includes(piece);
    const score = (i) => {
      const whole = i + 1 < found.length && !frozen(found[i]) && !frozen(found[i + 1]) && found[i] + found[i + 1];
      return scores.get(whole) ?? -Infinity;
    };
    const pairs = found.map((_, i) => score(i)); // of each piece and the next
    for (;;) {
      const best = pairs.reduce((first, one, i) => (one > pairs[first] ? i : first), 0);
      if (!(pairs[best] > -Infinity)) return found;
      found.splice(best, 2, found[best] + found[best + 1]);
      pairs.splice(best, 1);
      for (const i of [best - 1, best]) if (i >= 0) pairs[i] = score(i);
    }
  };
  const encode = (text, special) => {
    const result = [];
    for (const piece of pieces(text)) {
      if (scores.has(piece)) result.push(ids.get(piece));
      else if (byteIds.size) result.push(...utf8(piece).map((byte) => byteIds.get(byte)));
      else if (result.at(-1) !== special.unknown) result.push(special.unknown); // a run of them is one
    }
    return result;
  };
  const bytesOf = (id) => (isByte(id) ? byteOf(id) : utf8(vocabulary[id].replaceAll(BLANK_MARK, " ")));
  const join = (ids) => spelled(ids.flatMap(bytesOf));
  return { vocabulary, pieces, encode, join };
}

/** The text of bytes in UTF-8; each byte that is part of no character is U+FFFD. */
function spelled(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let result = "";
  for (let i = 0; i < bytes.length; ) {
    const length = 1 + [0xc0, 0xe0, 0xf0].filter((least) => bytes[i] >= least).length;
    try {
      result += decoder.decode(Uint8Array.from(bytes.slice(i, i + length)));
      i += length;
    } catch {
      result += "\ufffd";
      i++;
    }
  }
  return result;
}

/**
 * Finds the best sequences that K hypotheses can find: `keras_attn.runtime.beam` for one sentence.
 *
 * @param step  A function from hypotheses, with the last `id` of each and its `row` in the step before, to a promise of
 *     {logits (K * V), alignment (K * S)}.
 * @returns The hypotheses, best first: {score, tokenIds, logProbs, alignment}.
 */
async function beamSearch(step, { beamSize, nBest, norm, maxLength, special }) {
  const excluded = new Set([special.pad, special.start, special.end]);
  let finished = []; // {score, node}, best first
  let live = [{ id: special.start, total: 0, row: 0 }]; // row: of the previous step's results
  for (let position = 0; position < maxLength && live.length; position++) {
    const { logits, alignment } = await step(live);
    const [size, width] = [logits.length / live.length, alignment.length / live.length];
    const [extensions, endings] = [[], []];
    live.forEach((parent, row) => {
      const scores = logits.subarray(row * size, (row + 1) * size); // (V)
      const top = scores.reduce((a, b) => (b > a ? b : a), -Infinity);
      const normalizer = top + Math.log(scores.reduce((sum, one) => sum + Math.exp(one - top), 0));
      if (Number.isNaN(normalizer)) fail("a model with finite", "logits", "logits that are NaN");
      const weights = alignment.slice(row * width, (row + 1) * width); // (S)
      const extended = (id) => {
        const logProb = scores[id] - normalizer;
        return { id, parent, row, weights, logProb, total: parent.total + logProb };
      };
      endings.push(extended(special.end));
      if (position + 1 < maxLength) extensions.push(...highest(scores, beamSize, excluded).map(extended));
    });
    const best = extensions.sort((a, b) => b.total - a.total).slice(0, beamSize);
    for (const node of endings) {
      const better = [...best, ...endings].filter((other) => other.total > node.total).length;
      if (better < beamSize) finished.push({ node, score: node.total / norm(position + 1) });
    }
    finished = finished.sort((a, b) => b.score - a.score).slice(0, nBest);
    const least = finished.length < nBest ? -Infinity : finished.at(-1).score;
    const isDone = best.length && best[0].total / norm(maxLength) <= least;
    live = isDone || (beamSize === 1 && finished.length) ? [] : best;
  }
  return finished.map(({ node, score }) => {
    const path = [];
    for (let one = node; one.parent; one = one.parent) path.unshift(one);
    const [tokenIds, logProbs, alignment] = ["id", "logProb", "weights"].map((name) => path.map((one) => one[name]));
    return { score, tokenIds, logProbs, alignment };
  });
}

/** The places of the highest values, highest first, without those that are excluded; of two equal ones the first. */
function highest(values, count, excluded) {
  const places = [];
  values.forEach((value, place) => {
    if (excluded.has(place) || value === -Infinity) return;
    if (places.length === count && value <= values[places.at(-1)]) return;
    const before = places.findIndex((other) => value > values[other]);
    places.splice(before < 0 ? places.length : before, 0, place);
    if (places.length > count) places.pop();
  });
  return places;
}

/** Translates with graphs in ONNX, as `keras_attn.runtime.OnnxTranslator`. */
export class Translator {
  /**
   * @param ort  The module onnxruntime-web or onnxruntime-node.
   * @param read  A function from the name of a file in the folder to a promise of its bytes.
   */
  static async load(ort, read) {
    const manifest = JSON.parse(text(await read("manifest.json")));
    const { format, version, pointer } = manifest;
    if (format !== "keras_attn.onnx" || version !== 1 || pointer) {
      fail("a translator in ONNX of format 1,", "without a pointer", `format ${format} ${version}, pointer ${pointer}`);
    }
    const [source, target] = await Promise.all(
      ["source_tokenizer", "target_tokenizer"].map((folder) => Tokenizer.load(read, folder)),
    );
    if (source.special.end === null || target.special.end === null) fail("tokenizers with an", "end token", "none");
    const sessions = [];
    for (const name of ["encode.onnx", "step.onnx"]) sessions.push(await ort.InferenceSession.create(await read(name)));
    return new Translator(ort, manifest, source, target, sessions);
  }

  constructor(ort, manifest, sourceTokenizer, targetTokenizer, [encoder, decoder]) {
    Object.assign(this, { ort, manifest, sourceTokenizer, targetTokenizer, encoder, decoder });
  }

  /**
   * Translates a text by beam search.
   *
   * @param text  A sentence. A blank one has the translation "".
   * @param options  beamSize, nBest, lengthPenalty, normalization ("gnmt", "average" or "none") and maxLength, as the
   *     options of `Translator.generate` in Python.
   * @returns {text, score, probability, tokens, tokenIds, logProbs, alignment, sourceTokens, nBest}: alignment is T
   *     rows of S weights, the end tokens included, and nBest all hypotheses, best first.
   */
  async generate(
    text,
    { beamSize = 5, nBest = 1, lengthPenalty = 1, normalization = "gnmt", maxLength, ...others } = {},
  ) {
    if (typeof text !== "string") fail("a text to be", "a string", typeof text);
    const unknown = Object.keys(others).join(", ");
    if (unknown) fail("options among", "beamSize, nBest, lengthPenalty, normalization, maxLength", unknown);
    if (!(isWhole(beamSize, 1, Infinity) && isWhole(nBest, 1, beamSize))) {
      fail("whole numbers with", "1 <= nBest <= beamSize", `nBest ${nBest}, beamSize ${beamSize}`);
    }
    if (!NORMS.has(normalization)) fail("normalization to be", "gnmt, average or none", normalization);
    if (!(Number.isFinite(lengthPenalty) && lengthPenalty >= 0)) fail("lengthPenalty of", "at least 0", lengthPenalty);
    if (!isWhole(maxLength ?? 1, 1, LONGEST)) fail("maxLength to be a whole number from 1 to", LONGEST, maxLength);
    const [source, target] = [this.sourceTokenizer, this.targetTokenizer];
    const kept = this.manifest.source_length === null ? undefined : this.manifest.source_length - 1;
    const ids = BLANKS.test(text) ? [] : source.encode(text).slice(0, kept);
    const nothing = { text: "", score: 0, probability: 1, tokens: [], tokenIds: [], logProbs: [], alignment: [] };
    if (!ids.length) return { ...nothing, sourceTokens: [], nBest: [] };
    ids.push(source.special.end);
    const longest = maxLength ?? this.longest(ids.length);
    const norm = (length) => NORMS.get(normalization)(length) ** lengthPenalty;
    if (Math.fround(norm(longest)) === Infinity) fail("lengthPenalty with", "finite norms in float32", lengthPenalty);
    const step = await this.encoded(ids, longest);
    const found = await beamSearch(step, { beamSize, nBest, norm, maxLength: longest, special: target.special });
    const all = found.map((one) => ({
      ...one,
      text: target.decode(one.tokenIds),
      probability: Math.exp(one.logProbs.reduce((a, b) => a + b, 0)),
      tokens: one.tokenIds.map((id) => target.vocabulary[id]),
      sourceTokens: ids.map((id) => source.vocabulary[id]),
    }));
    return { ...all[0], nBest: all };
  }

  /** The largest number of tokens of a translation, for so many source tokens. */
  longest(sourceLength) {
    const { max_length_ratio: ratio, max_length_constant: constant, trained_length: trained } = this.manifest;
    const counted = Math.min(sourceLength, 2 * (trained || UNKNOWN_TRAINED_LENGTH));
    return Math.max(1, Math.ceil(Math.min(LONGEST, ratio * counted + constant)));
  }

  /** Encodes a source; returns its `step` for `beamSearch`. */
  async encoded(ids, maxLength) {
    const { ort, encoder, decoder } = this;
    const int32 = (values, ...shape) => new ort.Tensor("int32", Int32Array.from(values), shape);
    const given = { encoder_token_ids: int32(ids, 1, ids.length), max_length: int32([maxLength]) };
    const memory = await encoder.run(only(given, encoder.inputNames));
    const stateNames = encoder.outputNames.filter((name) => name.startsWith("state_"));
    let state = only(memory, stateNames);
    return async (live) => {
      const parents = live.map((one) => one.row);
      const arrays = { token_ids: int32(live.map((one) => one.id), live.length) };
      for (const name of decoder.inputNames) {
        if (name.startsWith("memory_")) arrays[name] = taken(ort, memory[name], parents.map(() => 0));
        else if (name.startsWith("state_")) arrays[name] = taken(ort, state[name], parents);
      }
      const { logits, alignment, ...next } = await decoder.run(arrays);
      state = Object.fromEntries(stateNames.map((name) => [name, next[`next_${name}`]]));
      return { logits: logits.data, alignment: alignment.data };
    };
  }
}

const only = (arrays, names) => Object.fromEntries(names.map((name) => [name, arrays[name]]));

/** Rows of a tensor, by their numbers. */
function taken(ort, { type, data, dims }, rows) {
  const width = data.length / dims[0];
  const copy = new data.constructor(width * rows.length);
  rows.forEach((from, to) => copy.set(data.subarray(from * width, (from + 1) * width), to * width));
  return new ort.Tensor(type, copy, [rows.length, ...dims.slice(1)]);
}
