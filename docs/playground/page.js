/** The page of the playground: what is typed, and what the models make of it. */

import { G2P } from "./g2p.js";
import { reader, Translator } from "./keras_attn.js";

const N_BEST = 5;
const FRENCH = "phrases_en_fr";
const EXAMPLES = { g2p_en_us: "Hello, Bahdanau!", [FRENCH]: "These women come back with a red book." };
const at = (name) => document.getElementById(name);
const [task, input, alphabet] = ["task", "text", "alphabet"].map(at);
const here = reader(new URL(".", import.meta.url).href.replace(/\/$/, ""));
const models = {}; // promises
let [latest, asked, queue] = [null, 0, Promise.resolve()];

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

async function loadRuntime() {
  if (!globalThis.WebAssembly) throw new Error("Expected a browser with WebAssembly. Received: one without.");
  const ort = await import("./ort.wasm.bundle.min.mjs");
  ort.env.wasm.numThreads = 1; // several need headers that most servers do not send
  ort.env.wasm.wasmBinary = await here("ort-wasm-simd-threaded.wasm");
  return ort;
}

/** A promise that is made once, and again after a failure. */
function once(name, make) {
  return (models[name] ??= make().catch((error) => {
    delete models[name];
    throw error;
  }));
}

async function loadModel(name) {
  const ort = await once("runtime", loadRuntime);
  const translator = await Translator.load(ort, (file) => here(`${name}/${file}`));
  if (name === FRENCH) return translator;
  const packed = new Blob([await here(`${name}.dict.gz`)]).stream();
  const lexicon = await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).text();
  const ipa = JSON.parse(new TextDecoder().decode(await here(`${name}.ipa.json`)));
  const arpabet = new G2P(translator, lexicon);
  return { arpabet, ipa: Object.assign(new G2P(translator, "", { phones: ipa }), { entries: arpabet.entries }) };
}

function showAlternatives(found, title) {
  const rows = found.map((one) => {
    const percent = `${(100 * one.probability).toFixed(one.probability < 0.1 ? 1 : 0)} %`;
    const bar = element("b", {}, element("i", { style: `width: ${100 * one.probability}%` }));
    return element("li", {}, element("span", {}, one.text || "(nothing)"), bar, element("small", {}, percent));
  });
  at("alternatives").replaceChildren(element("h3", { textContent: title }), element("ul", {}, ...rows));
}

function showAlignment({ tokens = [], sourceTokens = [], alignment = [] }) {
  const label = (token) => (token === "</s>" ? "end" : token.replaceAll("▁", " ").trim() || "␣");
  const names = sourceTokens.map((token) => element("th", { scope: "col" }, element("span", {}, label(token))));
  const rows = tokens.map((token, t) => {
    const cells = sourceTokens.map((source, s) => {
      const weight = alignment[t][s];
      const title = `${label(token)} ← ${label(source)}: ${Math.round(100 * weight)} %`;
      return element("td", { title }, element("i", { style: `opacity: ${weight.toFixed(3)}` }));
    });
    return element("tr", {}, element("th", { scope: "row" }, label(token)), ...cells);
  });
  const head = element("tr", {}, element("td"), ...names);
  const table = element("table", { className: task.value === FRENCH ? "long" : "" }, head, ...rows);
  at("alignment").replaceChildren();
  if (tokens.length) at("alignment").append(element("h3", { textContent: "Alignment" }), element("div", {}, table));
}

function show(found, title) {
  showAlternatives(found, title);
  showAlignment(found[0] ?? {});
}

async function pronounce(g2p, text) {
  at("result").textContent = await g2p.speak(text);
  const words = [...new Set(g2p.words(text))];
  const choose = async (word, button) => {
    const entries = (await g2p.pronounce(word)).filter((one) => one.origin === "lexicon");
    const found = await g2p.pronounce(word, { nBest: N_BEST, lexicon: false });
    for (const other of at("words").children) other.setAttribute("aria-pressed", other === button);
    const own = entries.length ? `; the lexicon has ${entries.map((one) => one.text).join(", or ")}` : "";
    show(found, `The model on “${word}”${own}`);
    const unknown = found[0]?.unknown ?? [];
    if (unknown.length) at("status").textContent = `The model has never seen: ${unknown.join(" ")}`;
  };
  const buttons = words.map((word) => element("button", { type: "button", textContent: word, className: "word" }));
  buttons.forEach((button, i) => button.addEventListener("click", () => run(() => choose(words[i], button))));
  at("words").replaceChildren(...buttons);
  const first = Math.max(0, words.findIndex((word) => !g2p.knows(word)));
  if (words.length) await choose(words[first], buttons[first]);
  else show([], "No word");
}

async function translate(translator, text) {
  const found = await translator.generate(text, { nBest: N_BEST });
  at("result").textContent = found.text;
  at("words").replaceChildren();
  show(found.nBest, "Alternatives");
}

/** Runs one thing after the other; of those that wait, the latest alone. */
function run(work) {
  const mine = ++asked;
  at("status").className = "";
  at("status").textContent = "Computing …";
  queue = queue.then(async () => {
    if (mine !== asked) return;
    const begin = performance.now();
    try {
      await work();
      const time = `${Math.round(performance.now() - begin)} ms`;
      if (at("status").textContent === "Computing …") at("status").textContent = time;
    } catch (error) {
      at("status").className = "failed";
      at("status").textContent = error.message;
    }
  });
}

function start() {
  const name = task.value;
  alphabet.hidden = name === FRENCH;
  run(async () => {
    if (!models[name]) at("status").textContent = "Loading the model …";
    const model = await once(name, () => loadModel(name));
    at("status").textContent = "Computing …";
    await (name === FRENCH ? translate(model, input.value) : pronounce(model[alphabet.value], input.value));
  });
}

at("try").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
input.addEventListener("input", () => {
  clearTimeout(latest);
  latest = setTimeout(start, 300);
});
alphabet.addEventListener("change", start);
task.addEventListener("change", () => {
  input.value = EXAMPLES[task.value];
  start();
});
start();
for (const name in EXAMPLES) {
  queue = queue.then(() => once(name, () => loadModel(name))).catch(() => {}); // for later; what fails is tried again
}
