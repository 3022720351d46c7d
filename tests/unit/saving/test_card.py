"""Model cards, read by Hugging Face's own reader."""

import pytest

from keras_attn.saving import model_card, task_of

SIGNATURE = "nrefs:1|case:mixed|version:2.6.0"
REPORT = {
    **{"source": "en", "target": "fr", "corpus": "phrases", "beam_size": 5, "command": "python -m recipes.train x"},
    "config": {"metric": "bleu"},
    "bleu": {"score": 96.83, "signature": SIGNATURE},
    "ter": {"score": 1.5, "signature": "nrefs:1"},
    "corpora": [{"name": "phrases", "title": "Phrases", "licence": "apache-2.0", "address": "https://x", "note": "N."}],
}
SIZES = {"model": "RNNSearch", "parameters": 1_254_144, "dtype": "float16"}


def read(text):
    return pytest.importorskip("huggingface_hub").ModelCard(text)


def test_a_card_has_metadata_for_the_hub_and_text_for_people():
    card = read(model_card("phrases_en_fr", **SIZES, report=REPORT))
    data = card.data.to_dict()
    assert data["language"] == ["en", "fr"]
    assert (data["license"], data["library_name"], data["pipeline_tag"]) == ("apache-2.0", "keras", "translation")
    results = card.data.eval_results
    assert [(one.metric_type, one.metric_value, one.dataset_name) for one in results] == [
        ("bleu", 96.83, "phrases"),
        ("ter", 1.5, "phrases"),
    ]
    assert SIGNATURE in results[0].metric_name
    text = model_card("phrases_en_fr", **SIZES, report=REPORT, is_registered=True)
    for part in (
        'keras_attn.Translator.from_preset("phrases_en_fr")',
        "1,254,144 parameters, matrices stored in float16. Task: translation, from en to fr.",
        "Phrases. Licence: apache-2.0. From https://x. N.",
        "| BLEU | 96.83 | `nrefs:1\\|case:mixed\\|version:2.6.0` |",
        "On the corpus' test split, beam 5.",
        "python -m recipes.train x",
    ):
        assert part in text, part


def test_without_a_report_a_card_has_neither_data_nor_scores():
    text = model_card("mine", **SIZES, report={})
    assert 'from_preset("path/of/mine")' in text
    assert "## " not in text
    assert read(text).data.to_dict().keys() == {"library_name", "tags", "pipeline_tag"}


def test_pronunciations_have_no_languages_and_other_licences_their_name():
    origins = [REPORT["corpora"][0] | {"licence": licence, "address": ""} for licence in ("public-domain", None)]
    report = REPORT | {"source": "letters", "target": "phones", "config": {"metric": "wer"}, "corpora": origins}
    data = read(text := model_card("g2p", **SIZES, report=report)).data.to_dict()
    assert task_of(report) == "pronunciation"
    assert "language" not in data
    assert "pipeline_tag" not in data
    assert (data["license"], data["license_name"]) == ("other", "public-domain")
    assert "No licence is stated." in text
    two = model_card("g2p", **SIZES, report=report | {"corpora": [REPORT["corpora"][0], origins[0]]})
    assert read(two).data.to_dict()["license_name"] == "apache-2.0 and public-domain"
