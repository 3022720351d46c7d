"""The diagrams of the pages on several devices and on bulk translation."""

from recipes.pages.diagrams import LEFT, MIDDLE, RIGHT, Diagram


def clusters() -> Diagram:
    """Two processes that train one model."""
    diagram = Diagram(396)
    full, width = RIGHT - LEFT, (RIGHT - LEFT - 16) / 2
    diagram.box(LEFT, 4, full, 36, "batch i of the corpus", "the same in every process", shade=True)
    for n, x in enumerate((LEFT, RIGHT - width)):
        middle = x + width / 2
        diagram.arrow((middle, 40), (middle, 98))
        diagram.text(middle + 6, 58, "its rows", ha="left", size=10.5)
        diagram.box(x, 76, width, 152, f"process {n}", look="frame")
        diagram.box(x + 10, 98, width - 20, 36, "the whole model", "the same weights")
        diagram.arrow((middle, 134), (middle, 156))
        diagram.box(x + 10, 156, width - 20, 50, "gradients", "of its rows, over the", "tokens of all rows")
        diagram.arrow((middle, 206), (middle, 252))
        diagram.arrow((middle, 288), (middle, 310))
    diagram.box(LEFT, 252, full, 36, "added up over all processes", "once an update", look="chosen")
    diagram.box(LEFT, 310, full, 26, "new weights, the same in every process")
    diagram.arrow((LEFT + width / 2, 336), (LEFT + width / 2, 356))
    diagram.box(LEFT, 356, width, 36, "the run's folder", "process 0 writes", shade=True)
    diagram.arrow((LEFT + width, 374), (RIGHT - width + 10, 374))
    diagram.text(RIGHT - width + 14, 367, "all read it", ha="left", size=10.5)
    diagram.text(RIGHT - width + 14, 381, "with --resume", ha="left", size=10.5)
    return diagram


def large_corpora() -> Diagram:
    """From files of text to batches, without the text in memory."""
    diagram = Diagram(352)
    side, full = 148, RIGHT - LEFT
    for x, name in ((LEFT, "train.*.en.gz"), (RIGHT - side, "train.*.fr.gz")):
        diagram.box(x, 4, side, 36, name, "files of text", shade=True)
    diagram.arrow((LEFT + side / 2, 40), (LEFT + side / 2, 76), "a million lines, at random")
    diagram.box(LEFT, 76, side, 36, "tokenizers", "learn from the sample")
    diagram.arrow((LEFT + side / 2, 112), (LEFT + side / 2, 148))
    diagram.arrow((RIGHT - side / 2, 40), (RIGHT - side / 2, 148))
    diagram.text(RIGHT - side / 2 - 6, 130, "all lines", ha="right", size=10.5)
    diagram.box(LEFT, 148, full, 36, "encoding", "all processors, once; goes on where it was killed")
    diagram.arrow((MIDDLE, 184), (MIDDLE, 214), "ids")
    diagram.box(LEFT, 214, full, 36, "token files in the cache", "later runs open them", look="chosen")
    diagram.arrow((MIDDLE, 250), (MIDDLE, 280), "a batch at a time")
    diagram.box(LEFT, 280, full, 36, "training", "the same batches as from memory")
    diagram.text(MIDDLE, 334, "In memory: a dozen bytes a pair.", size=10.5)
    return diagram
