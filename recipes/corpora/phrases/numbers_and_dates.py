"""Numbers, prices, dates and hours of the corpus `phrases`, each in English and French."""

import datetime
from functools import cache

from recipes.corpora.phrases.scene import Draw


@cache
def number(value: int, language: str, ordinal: bool = False) -> str:
    from num2words import num2words

    words = num2words(value, lang=language, to="ordinal" if ordinal else "cardinal")
    return words.replace(",", "")


@cache
def amount(cents: int, currency: str) -> tuple[str, str]:
    """An amount of money, `(English, French)`; currency is "EUR" or "USD"."""
    from num2words import num2words

    if cents % 100:
        english = num2words(cents / 100, lang="en", to="currency", currency=currency, separator=" and")
        french = num2words(cents / 100, lang="fr", to="currency", currency=currency)
        return english.replace(",", "").replace("euro ", "euros "), french
    name = {"EUR": "euros", "USD": "dollars"}[currency]
    return f"{number(cents // 100, 'en')} {name}", f"{number(cents // 100, 'fr')} {name}"


NUMBERS = (*range(2, 21), 21, 22, 30, 31, 40, 50, 60, 61, 70, 71, 80, 81, 90, 91)  # each form of French once


def price(draw: Draw) -> tuple[str, str]:
    scale = draw.weighted(small=4, hundreds=3, thousands=2, cents=2)
    value = {
        "small": draw.pick(NUMBERS),
        "hundreds": 100 * (2 + draw.below(8)) + 10 * draw.below(10),
        "thousands": 1000 * (1 + draw.below(9)) + 100 * draw.below(10),
        "cents": draw.pick(NUMBERS),
    }[scale]
    return amount(100 * value + (10 * (1 + draw.below(9)) if scale == "cents" else 0), draw.pick(("EUR", "USD")))


@cache
def date(day: datetime.date, style: str) -> tuple[str, str]:
    """A date with its preposition, `(English, French)`, by Babel (CLDR), but with the French `1er`."""
    from babel.dates import format_date

    preposition, american, british, french, article = {
        "long": ("on", "long", "", "long", "le "),
        "british": ("on", "", "long", "long", "le "),
        "full": ("on", "full", "", "full", "le "),
        "day": ("on", "MMMM d", "", "d MMMM", "le "),
        "weekday": ("on", "EEEE", "", "EEEE", ""),
        "month": ("in", "MMMM y", "", "MMMM y", "en "),
        "year": ("in", "y", "", "y", "en "),
    }[style]
    english = format_date(day, american or british, locale="en_US" if american else "en_GB")
    words = format_date(day, french, locale="fr_FR").split()
    return f"{preposition} {english}", article + " ".join("1er" if word == "1" else word for word in words)


def a_date(draw: Draw, tense: str) -> tuple[str, str]:
    style = draw.weighted(long=4, british=2, full=2, day=3, weekday=3, month=2, year=2)
    year = (2030 if tense == "future" else 2000) + draw.below(5 if tense == "future" else 15)
    return date(datetime.date(year, 1, 1) + datetime.timedelta(days=draw.below(365)), style)


def clock(draw: Draw) -> tuple[str, str]:
    hour = 1 + draw.below(11)
    english = number(hour, "en")
    french = "à une heure" if hour == 1 else f"à {number(hour, 'fr')} heures"
    return draw.pick(
        (
            (f"at {english} o'clock", french),
            (f"at half past {english}", f"{french} et demie"),
            (f"at a quarter past {english}", f"{french} et quart"),
            (f"at a quarter to {english}", f"{french} moins le quart"),
            (f"at ten past {english}", f"{french} dix"),
            (f"at twenty to {english}", f"{french} moins vingt"),
        )
    )
