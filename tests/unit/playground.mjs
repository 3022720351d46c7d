/** The answers of docs/playground and of docs/lecture/rnnsearch.js: a request as JSON comes in, and its answer goes out. */

import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

import { RNNSearch } from "../../docs/lecture/rnnsearch.js";
import { G2P } from "../../docs/playground/g2p.js";
import { Tokenizer, Translator } from "../../docs/playground/keras_attn.js";

const reading = (folder) => (name) => readFile(`${folder}/${name}`);

/** The ids of texts, and the texts of ids, for the tokenizers of a folder. */
async function tokenize({ folder, names, texts, rows }) {
  const answers = [];
  for (const name of names) {
    const tokenizer = await Tokenizer.load(reading(folder), name);
    const [encoded, decoded] = [texts.map((one) => tokenizer.encode(one)), rows.map((ids) => tokenizer.decode(ids))];
    answers.push([encoded, decoded]);
  }
  return answers;
}

/** What the models of folders make of texts, each job in turn; what each text and its options are refused for. */
async function run({ runtime, jobs }) {
  const ort = await import(pathToFileURL(runtime));
  ort.env.wasm.numThreads = 1;
  const [models, answers] = [{}, []];
  for (const { folder, texts, options, lexicon, refused } of jobs) {
    const translator = (models[folder] ??= await Translator.load(ort, reading(folder)));
    const g2p = lexicon && new G2P(translator, await readFile(lexicon, "utf-8"));
    const answer = [];
    for (const [one, wrong] of refused ?? []) {
      answer.push(await translator.generate(one, wrong).catch((error) => error.message));
    }
    for (const one of texts) answer.push(await (g2p ? g2p.speak(one) : translator.generate(one, options)));
    answers.push(answer);
  }
  return answers;
}

/** How the words of a list are read, and their entries in a lexicon. */
async function look({ folder, lexicon, words }) {
  const [sourceTokenizer, targetTokenizer] = await Promise.all(
    ["source_tokenizer", "target_tokenizer"].map((name) => Tokenizer.load(reading(folder), name)),
  );
  const g2p = new G2P({ sourceTokenizer, targetTokenizer }, await readFile(lexicon, "utf-8"));
  return words.map((word) => [g2p.read(word), g2p.entry(word)]);
}

/** Ids and weights of greedy translations by the lecture's model. */
async function translate({ folder, rows, limits, settings }) {
  const model = await RNNSearch.load(reading(folder));
  return rows.map((ids) => model.translate(ids, limits, settings).map(({ id, weights }) => ({ id, weights })));
}

const { call, ...request } = JSON.parse(await text(process.stdin));
const plain = (_, value) => (value instanceof Float32Array ? [...value] : value);
process.stdout.write(JSON.stringify(await { tokenize, run, look, translate }[call](request), plain));
