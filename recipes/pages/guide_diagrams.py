"""The diagrams of the guides: what goes where. Numbers and texts come from a report or from the shipped preset."""

from recipes.pages.diagrams import LEFT, MIDDLE, RIGHT, Diagram


def own_text(report: dict) -> Diagram:
    """What a run does, from files of text to a served model.

    Args:
        report: Of a training.
    """
    diagram = Diagram(478)
    side, data, config = 148, report["data"], report["config"]
    for x, name in ((LEFT, report["source"]), (RIGHT - side, report["target"])):
        diagram.box(x, 4, side, 36, f"train.{name}", f"{data['pairs']:,} lines", shade=True)
        diagram.arrow((x + side / 2, 40), (x + side / 2, 64))
        diagram.box(x, 64, side, 36, "tokenizer", f"{config['source_vocabulary_size']:,} pieces of words")
        diagram.arrow((x + side / 2, 100), (x + side / 2, 124), "ids")
    full = RIGHT - LEFT
    padding = f"{100 * data['padding']:.0f} % padding"
    diagram.box(LEFT, 124, full, 36, "batches of pairs of like length", f"{data['batches']} batches, {padding}")
    diagram.arrow((MIDDLE, 160), (MIDDLE, 184))
    minutes = (
        f"{report['epochs']} epochs, {report['train_seconds'] / 60:.0f} minutes on {report['hardware']['cores']} cores"
    )
    diagram.box(LEFT, 184, full, 36, f"training: {report['recipe']}", minutes, look="chosen")
    diagram.arrow((MIDDLE, 220), (MIDDLE, 252), "after each epoch")
    names = [f"{split}.{report['source']}, .{report['target']}" for split in ("val", "test")]
    diagram.box(LEFT, 252, 92, 36, names[0].split(",")[0], "validation", shade=True)
    diagram.arrow((LEFT + 92, 270), (LEFT + 116, 270))
    diagram.box(LEFT + 116, 252, full - 116, 36, "BLEU of greedy translations", "keeps the best weights")
    diagram.arrow((MIDDLE + 58, 288), (MIDDLE + 58, 312), "at the end")
    diagram.box(LEFT, 312, 92, 36, names[1].split(",")[0], "test", shade=True)
    diagram.arrow((LEFT + 92, 330), (LEFT + 116, 330))
    score = f"{report['bleu']['score']} on {report['test_sentences']:,} sentences"
    diagram.box(LEFT + 116, 312, full - 116, 36, f"BLEU with a beam of {report['beam_size']}", score)
    diagram.arrow((MIDDLE + 58, 348), (MIDDLE + 58, 372))
    diagram.box(LEFT, 372, full, 36, "the run's folder", "model, tokenizers, report.json", look="chosen")
    third = (full - 16) / 3
    for n, lines in enumerate((("translate", "text"), ("evaluate", "other text"), ("export", "saved_models/"))):
        x = LEFT + n * (third + 8)
        diagram.arrow((x + third / 2, 408), (x + third / 2, 432))
        diagram.box(x, 432, third, 36, *lines)
    return diagram


def serving(source: str, translation, shapes: dict, beam_size: int) -> Diagram:
    """The graph that is exported, from text to text.

    Args:
        source, translation: A sentence and its translation by the preset.
        shapes: Of "memory" and "state" for this sentence, without the batch, and of "logits".
        beam_size: Of the search.
    """
    diagram = Diagram(434)
    full = RIGHT - LEFT
    inner, wide = LEFT + 14, full - 28

    def shape(*numbers) -> str:
        return "(" + ", ".join(map(str, numbers)) + ")"

    diagram.box(LEFT, 4, full, 36, "text in, over REST or gRPC", source, shade=True)
    diagram.arrow((MIDDLE, 40), (MIDDLE, 86))
    diagram.box(LEFT, 54, full, 312, "SavedModel: one graph, no Python", look="frame")
    diagram.box(inner, 86, wide, 50, "tokenize", *_pieces(translation.source_tokens, translation.source_token_ids))
    diagram.arrow((MIDDLE, 136), (MIDDLE, 162), f"ids {shape(1, len(translation.source_token_ids))}")
    memory, state = shape(1, *shapes["memory"]), shape(1, *shapes["state"])
    diagram.box(inner, 162, wide, 36, "encode, once a sentence", f"memory {memory}, state {state}")
    diagram.arrow((MIDDLE, 198), (MIDDLE, 224))
    logits = f"{beam_size} tokens in, logits {shape(beam_size, shapes['logits'])} out"
    diagram.box(
        inner,
        224,
        wide,
        50,
        f"beam search: {len(translation.tokens)} steps or more",
        logits,
        "keeps the best, and goes on",
        look="chosen",
    )
    diagram.arrow((MIDDLE, 274), (MIDDLE, 300), f"ids {shape(1, len(translation.token_ids))}")
    diagram.box(inner, 300, wide, 50, "detokenize", *_pieces(translation.tokens, translation.token_ids))
    diagram.arrow((MIDDLE, 350), (MIDDLE, 392))
    diagram.box(LEFT, 392, full, 36, "text out", translation.text, shade=True)
    return diagram


def _pieces(tokens, token_ids) -> tuple[str, str]:
    """The first pieces, and their ids."""
    return " ".join([*tokens[:4], "…"]), " ".join([*map(str, token_ids[:4]), "…"])


def extending() -> Diagram:
    """Three nested parts, each of which one may write; the arrows have the shapes."""
    diagram = Diagram(428)
    full = RIGHT - LEFT
    diagram.box(LEFT, 4, full, 388, "search: any function of one step", look="frame")
    diagram.text(MIDDLE, 30, "`beam_search(step, memory, state)`")
    diagram.box(LEFT + 12, 46, full - 24, 312, "a model: encode and step", look="frame")
    inner, wide = LEFT + 24, full - 48
    diagram.box(inner, 70, wide, 36, "encode", "once a sentence")
    diagram.arrow((MIDDLE, 106), (MIDDLE, 146))
    diagram.text(MIDDLE + 8, 119, "memory (B, S, M), keys", ha="left", size=10.5)
    diagram.text(MIDDLE + 8, 133, "state (B, H)", ha="left", size=10.5)
    diagram.box(inner, 146, wide, 36, "step", "token ids (B,), memory, state")
    diagram.arrow((MIDDLE, 182), (MIDDLE, 210), "query (B, H)")
    diagram.box(inner, 210, wide, 88, "an attention layer", look="frame")
    diagram.box(inner + 10, 232, 100, 50, "scores", "(B, S)", "you write it", look="chosen")
    diagram.arrow((inner + 110, 257), (inner + 130, 257))
    diagram.box(inner + 130, 232, wide - 140, 50, "inherited", "mask, softmax (B, S)", "context (B, M)")
    diagram.arrow((MIDDLE, 298), (MIDDLE, 322))
    diagram.box(inner, 322, wide, 26, "logits (B, V), state, alignment (B, S)")
    diagram.arrow((MIDDLE, 348), (MIDDLE, 370))
    diagram.text(MIDDLE, 379, "keeps the best tokens, and steps again")
    diagram.text(MIDDLE, 404, "B batch (in a search, beams too), S source length,", size=10.5)
    diagram.text(MIDDLE, 418, "M memory width, H units, V vocabulary", size=10.5)
    return diagram


def attention_orders() -> Diagram:
    """One step of RNNsearch, and of what JoeyNMT calls RNN."""
    diagram = Diagram(330)
    width = 152
    columns = (
        (
            ("RNNSearch", "before", "Bahdanau"),
            ("state sᵢ₋₁", "before word i"),
            ("cell reads yᵢ₋₁ and cᵢ", "state sᵢ"),
            ("read-out", "logits of word i"),
        ),
        (
            ("LuongSeq2Seq", "after", "JoeyNMT, OpenNMT-py"),
            ("cell reads yᵢ₋₁ and aᵢ₋₁", "state sᵢ"),
            ("attentional layer", "aᵢ of sᵢ and cᵢ"),
            ("output projection", "logits of word i"),
        ),
    )
    for x, ((name, order, also), first, third, last) in zip((LEFT, RIGHT - width), columns, strict=True):
        middle = x + width / 2
        diagram.text(middle, 12, name, weight="bold")
        diagram.text(middle, 28, f'`attend="{order}"`')
        diagram.text(middle, 44, also)
        diagram.box(x, 60, width, 36, *first, shade=order == "before")
        diagram.arrow((middle, 96), (middle, 120), "asks")
        diagram.box(x, 120, width, 36, "attention", "context cᵢ", look="chosen")
        diagram.arrow((middle, 156), (middle, 180))
        diagram.box(x, 180, width, 36, *third)
        diagram.arrow((middle, 216), (middle, 240))
        diagram.box(x, 240, width, 36, *last)
    diagram.text(MIDDLE, 296, "yᵢ₋₁: the last word. aᵢ₋₁ goes into the next step:")
    diagram.text(MIDDLE, 311, "that is input feeding.")
    return diagram


def tfa_parts() -> Diagram:
    """What tensorflow_addons takes for training and for a beam, and what stands for it here."""
    diagram = Diagram(456)
    full, half = RIGHT - LEFT, (RIGHT - LEFT - 32) / 2
    left, right = LEFT + 12, RIGHT - 12 - half
    diagram.box(LEFT, 4, full, 258, "tensorflow_addons", look="frame")
    for x, name, last in ((left, "training", "BasicDecoder"), (right, "beam search", "BeamSearchDecoder")):
        middle = x + half / 2
        diagram.text(middle, 32, name)
        memory = "memory" if name == "training" else "tile_batch(memory)"
        diagram.box(x, 44, half, 36, "BahdanauAttention", memory, look="chosen")
        diagram.arrow((middle, 80), (middle, 102))
        diagram.box(x, 102, half, 36, "AttentionWrapper", "cell, initial state")
        diagram.arrow((middle, 138), (middle, 160))
        given = "sampler, output layer" if name == "training" else "embedding, width K"
        diagram.box(x, 160, half, 36, last, given)
        diagram.arrow((middle, 196), (middle, 218))
        diagram.box(x, 218, half, 36, "dynamic_decode", "the loop")
    diagram.box(LEFT, 276, full, 172, "keras_attn", look="frame")
    diagram.box(
        left, 300, full - 24, 36, "AttentionDecoder", "cell, BahdanauAttention: no memory inside", look="chosen"
    )
    for x, name, lines in (
        (left, "training", ("decoder(…)", "inputs, values:", "all steps in one call")),
        (right, "beam search", ("beam_search(…)", "step, memory, state:", "the model's own step")),
    ):
        diagram.arrow((x + half / 2, 336), (x + half / 2, 388), name)
        diagram.box(x, 388, half, 50, *lines)
    return diagram


def presets(name: str, entry) -> Diagram:
    """Where a preset is looked for.

    Args:
        name, entry: Of the registry.
    """
    diagram = Diagram(404)
    full = RIGHT - LEFT
    diagram.box(LEFT, 4, full, 26, f'`from_preset("{name}")`', shade=True)
    rows = (
        ("$KERAS_ATTN_PRESETS", "if it is a folder"),
        ("saved_models/presets/", "of the checkout of the package"),
        ("Keras' cache", "$KERAS_HOME or ~/.keras"),
        ("an address", "that variable's, or the registry's"),
    )
    width, found = 196, RIGHT - 40
    diagram.arrow((LEFT + width / 2, 30), (LEFT + width / 2, 50))
    for n, lines in enumerate(rows):
        y = 50 + 64 * n
        diagram.box(LEFT, y, width, 38, f"{n + 1}. {lines[0]}", lines[1])
        diagram.lines([(LEFT + width, y + 19), (found, y + 19)])
        diagram.text((LEFT + width + found) / 2, y + 10, "found", size=10.5)
        if n < len(rows) - 1:
            diagram.arrow((LEFT + width / 2, y + 38), (LEFT + width / 2, y + 64), "not there")
    last = 50 + 64 * 3
    diagram.lines([(found, 69), (found, last + 19)])
    diagram.arrow((found, last + 19), (found, 322))
    diagram.arrow((LEFT + width / 2, last + 38), (LEFT + width / 2, 298), "not there")
    diagram.text(LEFT + width / 2, 307, "an error that names the places", size=10.5)
    files = f"{len(entry.files)} files, {entry.size / 1e6:.1f} MB: sizes and SHA-256"
    diagram.box(LEFT, 322, full, 38, "checked against the registry", files, look="chosen")
    diagram.arrow((MIDDLE, 360), (MIDDLE, 378))
    diagram.text(MIDDLE, 389, "Translator", weight="bold")
    return diagram


def without_keras() -> Diagram:
    """Two graphs, and a search between them."""
    diagram = Diagram(352)
    full = RIGHT - LEFT
    diagram.box(LEFT, 4, full, 26, "text", shade=True)
    diagram.arrow((MIDDLE, 30), (MIDDLE, 56))
    diagram.box(LEFT, 56, full, 36, "source_tokenizer/", "SentencePiece, or Python")
    diagram.arrow((MIDDLE, 92), (MIDDLE, 122), "ids (B, S)")
    diagram.box(LEFT, 122, full, 36, "encode.onnx", "onnxruntime, once a sentence", look="chosen")
    diagram.arrow((LEFT + 55, 158), (LEFT + 55, 188), "memory, state")
    half = (full - 96) / 2
    diagram.box(LEFT, 188, half, 50, "beam search", "NumPy:", "all options")
    diagram.box(RIGHT - half, 188, half, 50, "step.onnx", "onnxruntime,", "once a token", look="chosen")
    diagram.arrow((LEFT + half, 200), (RIGHT - half, 200))
    diagram.text(MIDDLE, 190, "token ids", size=10.5)
    diagram.arrow((RIGHT - half, 224), (LEFT + half, 224))
    diagram.text(MIDDLE, 234, "logits, state", size=10.5)
    diagram.arrow((LEFT + half / 2, 238), (LEFT + half / 2, 268), "ids (B, T)")
    diagram.box(LEFT, 268, full, 36, "target_tokenizer/", "SentencePiece, or Python")
    diagram.arrow((MIDDLE, 304), (MIDDLE, 326))
    diagram.text(MIDDLE, 337, "text", weight="bold")
    return diagram


# Marian's weights of type s2s, by what their names begin with, our layer, and what it makes of what.
MARIAN = (
    ("encoder_Wemb", "source_embedding", "ids (B, S) → (B, S, E)"),
    ("encoder_bi_[WUb]", "encoder/forward", "GRU: h→ (B, S, H)"),
    ("encoder_bi_r_", "encoder/backward", "GRU: h← (B, S, H)"),
    ("decoder_ff_state_", "bridge", "mean of h → state (B, H)"),
    ("decoder_Wemb", "target_embedding", "last token (B,) → (B, E)"),
    ("decoder_cell1_", "decoder/cell", "GRU: query s′ (B, H)"),
    ("decoder_.*_att", "decoder/attention", "s′, h → context (B, 2H)"),
    ("decoder_cell2_", "decoder/second_cell", "GRU: s′, context → state"),
    ("decoder_ff_logit_l1_", "readout", "word, state, context → (B, E)"),
    ("decoder_ff_logit_l2_", "output", "logits (B, V + 2)"),
)


def marian() -> Diagram:
    """Which weights of Marian go into which layer, in the order in which a sentence passes them."""
    step, width = 46, 178
    diagram = Diagram(56 + step * len(MARIAN))
    x = RIGHT - width
    diagram.text((LEFT + x) / 2, 12, "Marian", weight="bold")
    diagram.text(x + width / 2, 12, "NematusSeq2Seq", weight="bold")
    for n, (pattern, layer, about) in enumerate(MARIAN):
        y = 26 + step * n
        name = pattern.replace(".*", "…").removesuffix("[WUb]").removesuffix("_")
        diagram.text(LEFT, y + 18, f"`{name}`", ha="left", size=10.5)
        diagram.arrow((x - 14, y + 18), (x, y + 18))
        attends = layer.endswith("attention")
        diagram.box(x, y, width, 36, layer, about, look="chosen" if attends else "plain", shade=n in (0, 4))
        if n not in (1, 3, len(MARIAN) - 1):  # both directions read the embedding; the decoder reads its own
            diagram.arrow((x + width / 2, y + 36), (x + width / 2, y + step))
    diagram.text(
        MIDDLE, 36 + step * len(MARIAN), "H units, E embedding. Gates r, z of Marian are z, r in Keras;", size=10.5
    )
    diagram.text(MIDDLE, 49 + step * len(MARIAN), "V + 2: with padding and start, which are never produced.", size=10.5)
    return diagram
