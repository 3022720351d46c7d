/** The page of the lecture on which a reader changes the attention of a trained model: a form, and what comes of it. */

import { reader, Tokenizer } from "../playground/keras_attn.js";
import { RNNSearch, SCORES, TRAINED } from "./rnnsearch.js";

const at = (name) => document.getElementById(name);
const read = reader(new URL("../playground/phrases_en_fr", import.meta.url).href);
const label = (token) => (token === "</s>" ? "end" : token.replaceAll("▁", " ").trim() || "␣");
const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
let [loaded, latest, chosen] = [null, null, 0];

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

async function load() {
  const tokenizers = ["source_tokenizer", "target_tokenizer"].map((name) => Tokenizer.load(read, name));
  const [model, source, target] = await Promise.all([RNNSearch.load(read), ...tokenizers]);
  return { model, source, target };
}

/** Rows of a name, a bar and a number. */
const bars = (rows) =>
  rows.map(([name, share, number]) => {
    const bar = element("b", {}, element("i", { style: `width: ${100 * share}%` }));
    return element("li", {}, element("span", {}, name), bar, element("small", {}, number));
  });

/** Two vectors as strips of their numbers from -1, orange, to 1, blue. */
function strips(canvas, vectors) {
  Object.assign(canvas, { width: vectors[0].length, height: vectors.length });
  const drawing = canvas.getContext("2d");
  vectors.forEach((vector, y) =>
    vector.forEach((value, x) => {
      drawing.fillStyle = `hsl(${value > 0 ? 212 : 28} 80% 50% / ${Math.min(1, 1.5 * Math.abs(value))})`;
      drawing.fillRect(x, y, 1, 1);
    }),
  );
}

function showStep(steps, words, { target }) {
  chosen = Math.min(chosen, steps.length - 1);
  const { scores, weights, context, trained, probabilities, id } = steps[chosen];
  [...at("steps").children].forEach((button, i) => button.setAttribute("aria-pressed", i === chosen));
  [...at("rows").querySelectorAll("tr")].forEach((line, i) => line.classList.toggle("chosen", i === chosen + 1));
  at("scores").replaceChildren(
    ...bars(words.map((word, j) => [`${word}: e = ${scores[j].toFixed(2)}`, weights[j], percent(weights[j])])),
  );
  const length = (vector) => Math.hypot(...vector);
  const change = length(context.map((one, m) => one - trained[m])) / length(trained);
  at("change").textContent = `above as trained, below now: changed by ${percent(change)} of its length`;
  strips(at("context"), [trained, context]);
  const best = [...probabilities.keys()].sort((a, b) => probabilities[b] - probabilities[a]).slice(0, 5);
  const named = (one) => `${label(target.vocabulary[one])}${one === id ? " ←" : ""}`;
  at("next").replaceChildren(...bars(best.map((one) => [named(one), probabilities[one], percent(probabilities[one])])));
}

function show(steps, words, parts) {
  const tokens = steps.map(({ id }) => label(parts.target.vocabulary[id]));
  at("result").textContent = parts.target.decode(steps.map(({ id }) => id));
  const pick = (i) => {
    chosen = i;
    showStep(steps, words, parts);
  };
  at("steps").replaceChildren(
    ...tokens.map((token, i) =>
      element("button", { type: "button", className: "word", textContent: token, onclick: () => pick(i) }),
    ),
  );
  const names = words.map((word) => element("th", { scope: "col" }, element("span", {}, word)));
  const rows = steps.map(({ weights }, i) => {
    const cells = weights.map((weight, j) => {
      const title = `${tokens[i]} ← ${words[j]}: ${percent(weight)}`;
      return element("td", { title }, element("i", { style: `opacity: ${weight.toFixed(3)}` }));
    });
    return element("tr", {}, element("th", { scope: "row" }, tokens[i]), ...cells);
  });
  at("rows").replaceChildren(
    element("table", { className: "long" }, element("tr", {}, element("td"), ...names), ...rows),
  );
  showStep(steps, words, parts);
}

async function run() {
  at("status").className = "";
  try {
    loaded ??= load();
    const parts = await loaded;
    const { source, target, model } = parts;
    const ids = [...source.encode(at("text").value).slice(0, 80), source.special.end];
    const words = ids.map((id) => label(source.vocabulary[id]));
    const settings = { score: at("score").value, temperature: 10 ** Number(at("temperature").value) };
    const { start, end, pad } = target.special;
    const limits = { start, end, excluded: [pad, start], longest: Math.ceil(1.5 * ids.length) + 10 };
    show(model.translate(ids, limits, settings), words, parts);
    const isTrained = settings.score === TRAINED.score && settings.temperature === TRAINED.temperature;
    at("kelvin").textContent = settings.temperature.toPrecision(2);
    at("status").textContent = isTrained ? "As trained." : "Not as trained: the model never saw such contexts.";
  } catch (error) {
    loaded = null;
    at("status").className = "failed";
    at("status").textContent = error.message;
  }
}

at("score").append(...Object.keys(SCORES).map((name) => element("option", { value: name }, name)));
at("try").querySelector("form").addEventListener("submit", (event) => event.preventDefault());
at("try").querySelector("form").addEventListener("input", () => {
  clearTimeout(latest);
  latest = setTimeout(run, 100);
});
at("trained").addEventListener("click", () => {
  [at("score").value, at("temperature").value] = [TRAINED.score, 0];
  run();
});
run();
