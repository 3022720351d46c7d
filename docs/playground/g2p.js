/**
 * Pronunciation without Python: what `keras_attn.G2P` does, a word or a sentence at a time.
 *
 *     import { G2P } from "./g2p.js";
 *
 *     const g2p = new G2P(await Translator.load(ort, read), lexicon); // Translator: of keras_attn.js
 *     console.log(await g2p.speak("We sleep."));
 */

import { BLANKS, fail } from "./keras_attn.js";

const INVISIBLE = "\\u00ad\\u061c\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u2064\\u2066-\\u206f\\ufe00-\\ufe0f\\ufeff";
const RUN = `[\\p{L}\\p{N}]+(?:[\\p{M}${INVISIBLE}]+[\\p{L}\\p{N}]+)*\\p{M}*`;
const QUOTES = "'\u2018\u2019\u02bc\u0060\u00b4";
const OUTER = `[${QUOTES}]?`;
const WORD = new RegExp(`${OUTER}(?<core>${RUN}(?:[${QUOTES}\u2010\u2011.-]${RUN})*)${OUTER}`, "gu");
const isInvisible = (letter) => new RegExp(`^[${INVISIBLE}]`, "u").test(letter);
const wordKey = (word) =>
  word
    .normalize("NFC")
    .toLowerCase()
    .replace(new RegExp(`[${QUOTES}]`, "g"), "'")
    .replace(/[\u2010\u2011]/g, "-")
    .replace(new RegExp(`[${INVISIBLE}]`, "gu"), "");
// Latin letters that Unicode does not decompose, as CLDR's transform Latin-ASCII has them.
const PLAIN_LETTERS = { ß: "ss", æ: "ae", œ: "oe", ø: "o", ł: "l", đ: "d", ð: "d", þ: "th", ħ: "h", ı: "i" };
Object.assign(PLAIN_LETTERS, { ŋ: "ng", ŧ: "t", ĸ: "q" });
const plainForm = (letter) =>
  PLAIN_LETTERS[letter] ?? (/^[\p{L}\p{N}]/u.test(letter) ? letter.normalize("NFKC") : letter);

/** Pronounces words and sentences, by a lexicon where it has the word, else by a model: `keras_attn.G2P`. */
export class G2P {
  /**
   * @param translator  From letters to phones, whose source tokenizer has the level "letter".
   * @param lexicon  A text of lines "word, tab, phones" or as CMUdict's; "" for none.
   * @param options  tag: of a model of several languages, such as "<2ita>". phones: what is shown for a phone, by name.
   */
  constructor(translator, lexicon = "", { tag = "", phones = {} } = {}) {
    const { vocabulary } = translator.targetTokenizer;
    const isArpabet = ["HH", "NG", "K"].every((phone) => vocabulary.includes(phone));
    Object.assign(this, { translator, tag, phones, entries: new Map() });
    this.stressless = isArpabet && !vocabulary.some((phone) => /\d/.test(phone));
    for (const line of lexicon.split("\n").map((line) => line.replace(/^;;;.*|^#\s.*|\s(#|;;;).*/g, "").trim())) {
      if (!line) continue;
      const [word, ...rest] = line.split(line.includes("\t") ? "\t" : " ");
      const key = wordKey(word.trim().replace(/(?<=.)\(\d+\)$/, ""));
      const phones = rest.join(" ").trim().split(/\s+/).join(" ");
      if (!phones || (rest.length > 1 && line.includes("\t"))) {
        fail("a word and its phones in the", "lexicon", line.slice(0, 80));
      }
      if (!this.entries.get(key)?.push(phones)) this.entries.set(key, [phones]);
    }
  }

  /** Returns the best pronunciation of a word or sentence. */
  async speak(sentence) {
    const best = new Map();
    for (const word of this.words(sentence)) {
      if (!best.has(word)) best.set(word, (await this.pronounce(word))[0].text || word);
    }
    return sentence.replace(WORD, (match, core) => {
      const word = this.wordOf(match, core);
      return match.replace(word, () => best.get(word));
    });
  }

  /** Returns the words of a sentence, as they are pronounced. */
  words(sentence) {
    return [...sentence.matchAll(WORD)].map(([match, core]) => this.wordOf(match, core));
  }

  /** Returns a word with the apostrophes around it if the lexicon has it so, else without. */
  wordOf(match, core) {
    return this.entries.has(wordKey(match)) ? match : core;
  }

  /** Returns whether a word is in the lexicon. */
  knows(word) {
    return this.entry(word).length > 0;
  }

  /** Returns the letters of a word as the model reads them; those without a form that it knows stay. */
  read(word) {
    const letters = this.translator.sourceTokenizer;
    const isKnown = (text) => letters.encode(text).every((id) => id !== letters.special.unknown);
    const plain = (letter) => (isKnown(plainForm(letter)) ? letters.pieces(plainForm(letter)) : [letter]);
    return letters.pieces(word).flatMap((letter) => {
      if (isKnown(letter)) return [letter];
      return isInvisible(letter) ? [] : plain(letter);
    });
  }

  /** Returns the entries of a word, of its plain letters, with a full stop behind an abbreviation, or without marks. */
  entry(word) {
    const forms = [wordKey(word.trim())];
    if (!/\s/.test(forms[0])) {
      forms.push(this.read(word).join(""));
      if (forms[1].includes(".")) forms.push(`${forms[1]}.`);
      forms.push(forms[1].replace(/^[.'-]+|[.'-]+$/g, ""));
    }
    return this.entries.get(forms.find((form) => this.entries.has(form))) ?? [];
  }

  /**
   * Returns the pronunciations of a word, best first: {text, origin, probability, alignment, tokens, sourceTokens,
   * unknown}. A word of the lexicon has its entries, any other the `nBest` of the model.
   */
  async pronounce(word, { nBest = 1, lexicon = true } = {}) {
    if (BLANKS.test(word)) return [];
    const shown = (text) => text.split(" ").map((phone) => this.phones[phone] ?? phone).join(" ");
    const entries = lexicon ? this.entry(word) : [];
    const texts = new Set(entries.map((one) => shown(this.stressless ? one.replace(/\d/g, "") : one)));
    if (texts.size) return [...texts].map((text) => ({ text, origin: "lexicon", probability: 1, unknown: [] }));
    const letters = this.translator.sourceTokenizer;
    const pieces = this.read(word);
    const isKnown = (piece) => letters.encode(piece)[0] !== letters.special.unknown;
    const unknown = pieces.filter((piece) => !isKnown(piece));
    const isSpoken = pieces.some((piece) => isKnown(piece) && /^[\p{L}\p{N}]/u.test(piece));
    if (!isSpoken) return [{ text: "", origin: "model", probability: 0, unknown }];
    const options = { nBest, beamSize: Math.max(5, nBest) };
    const { nBest: found } = await this.translator.generate([this.tag, ...pieces].join(" ").trim(), options);
    const skip = this.tag ? 1 : 0; // the tag is no letter of the word
    return found.map((one) => ({
      ...one,
      text: shown(one.text),
      tokens: one.tokens.map((phone) => this.phones[phone] ?? phone),
      sourceTokens: one.sourceTokens.slice(skip),
      alignment: one.alignment.map((weights) => weights.slice(skip)),
      origin: "model",
      unknown,
    }));
  }
}
