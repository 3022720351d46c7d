"""The morphology of French that the corpus `phrases` needs: conjugation, participles and sandhi.

Sandhi is the last step of writing French, where neighbours change each other: elision (l', d', qu', j'), contraction
(du, au, des, aux), "mon" before a vowel, "cet", "bel".
"""

import re
from functools import cache

# --- verbs: the persons 0..5 are je, tu, il, nous, vous, ils

_PRESENT = {
    "avoir": "ai as a avons avez ont",
    "être": "suis es est sommes êtes sont",
    "prendre": "prends prends prend prenons prenez prennent",
    "peindre": "peins peins peint peignons peignez peignent",
    "dormir": "dors dors dort dormons dormez dorment",
    "partir": "pars pars part partons partez partent",
    "sortir": "sors sors sort sortons sortez sortent",
    "revenir": "reviens reviens revient revenons revenez reviennent",
    "rire": "ris ris rit rions riez rient",
    "savoir": "sais sais sait savons savez savent",
    "dire": "dis dis dit disons dites disent",
}
_IMPERFECT = {
    "avoir": "avais avais avait avions aviez avaient",
    "être": "étais étais était étions étiez étaient",
}
_FUTURE_STEM = {
    "avoir": "aur",
    "être": "ser",
    "envoyer": "enverr",
    "revenir": "reviendr",
    "acheter": "achèter",
    "payer": "paier",
}
_PARTICIPLE = {
    "prendre": "pris",
    "peindre": "peint",
    "revenir": "revenu",
    "rire": "ri",
    "naître": "né",
}
# the stem of the forms with a silent ending
_STRONG_STEM = {"acheter": "achèt", "espérer": "espèr"}


@cache
def conjugate(infinitive: str, tense: str, person: int) -> str:
    """The finite form; tense is "present", "imperfect" (avoir, être) or "future", person 0..5."""
    if tense == "imperfect":
        return _IMPERFECT[infinitive].split()[person]
    if tense == "future":
        stem = _FUTURE_STEM.get(infinitive, infinitive.removesuffix("e"))
        return stem + ("ai", "as", "a", "ons", "ez", "ont")[person]
    if infinitive in _PRESENT:
        return _PRESENT[infinitive].split()[person]
    stem, ending = infinitive[:-2], infinitive[-2:]
    if ending == "er":
        strong = _STRONG_STEM.get(infinitive, re.sub("y$", "i", stem))
        return (stem if person in (3, 4) else strong) + ("e", "es", "e", "ons", "ez", "ent")[person]
    if ending == "re":
        return stem + ("s", "s", "", "ons", "ez", "ent")[person]
    return stem + ("is", "is", "it", "issons", "issez", "issent")[person]


def participle(infinitive: str, gender: str | None = None, plural: bool = False) -> str:
    """The past participle, agreeing with `gender` and `plural` (None: no agreement)."""
    ending = {"er": "é", "ir": "i", "re": "u"}[infinitive[-2:]]
    form = _PARTICIPLE.get(infinitive, infinitive[:-2] + ending)
    form += "e" if gender == "f" else ""
    return form + "s" if gender and plural and not form.endswith("s") else form


# --- sandhi

_VOWEL = r"(?=(?!onz|oui)(?:[aeiouâàéèêëîïôûœAEIOUÉÊ]|y\b|hom|hôt|heur))"
_SANDHI = [
    (re.compile(rf"\bbeau~ {_VOWEL}"), "bel "),
    (re.compile(rf"\bnouveau~ {_VOWEL}"), "nouvel "),
    (re.compile(rf"\bvieux~ {_VOWEL}"), "vieil "),
    (re.compile("~"), ""),
    (re.compile(rf"\b([mts])a {_VOWEL}"), r"\1on "),
    (re.compile(rf"(?<!-)\bce {_VOWEL}"), "cet "),
    (re.compile(rf"\b(l|j|m|t|s|n|d|qu)[ea] {_VOWEL}"), r"\1'"),
    (re.compile(r"\bsi (?=ils?\b)"), "s'"),
    (re.compile(r"\bde le\b(?!')"), "du"),
    (re.compile(r"\bde les\b"), "des"),
    (re.compile(r"\bà le\b(?!')"), "au"),
    (re.compile(r"\bà les\b"), "aux"),
]


def sandhi(text: str) -> str:
    """Elides and contracts: "à le hôtel de la actrice" -> "à l'hôtel de l'actrice".

    "~" marks beau, nouveau and vieux before a noun.
    """
    for pattern, replacement in _SANDHI:
        text = pattern.sub(replacement, text)
    return text
