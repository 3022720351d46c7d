"""The study of the roles of heads: shares by hand, removal, its report and page."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from keras import ops

from keras_attn import Translator
from recipes.studies import head_roles

ROOT = Path(__file__).parents[3]


def test_the_shares_of_a_row_by_hand():
    masks = head_roles._masks(["▁a", "▁b", "▁,", "</s>"], [1, -9], {"▁a": 3, "▁b": 1, "▁,": 2, "</s>": 0})
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    expected = {"before": [0.1, 0], "same": [0.2, 0], "after": [0.3, 0], "rarest": [0.2, 0.3]}
    expected |= {"punctuation": [0.3, 0.2], "end": [0.4, 0.1]}
    assert dict(zip(head_roles.ROLES, (weights * masks).sum(-1).tolist(), strict=True)) == expected


def test_the_report_has_each_head_and_its_removal(runs, corpus, tmp_path):
    out = tmp_path / "head_roles"
    assert head_roles.main([str(runs[1]), "--corpus", str(corpus), "--max-words", "9", "--out", str(out)]) == 0
    report = json.loads((out / "report.json").read_text())
    names = [f"{kind} {n}, head {m}" for kind in head_roles.KINDS for n in (1, 2) for m in (1, 2)]
    even = report["rows"][:3]
    assert [row["name"] for row in report["rows"][3:]] == names
    assert sorted(row["name"] for row in report["pruned"]) == sorted(names)
    assert [row["name"] for row in report["rows"] if "bleu" in row] == names
    assert [row["name"] for row in report["rows"] if row["after"] is None] == [
        row["name"] for row in report["rows"] if row["name"].startswith("decoder")
    ]
    words = np.array([4, 5, 9]) + 1  # of the test sentences of at most nine, with the end
    assert even[0]["same"] == pytest.approx(100 * len([*words, 3]) / sum([*words, 3]), abs=0.051)


def test_a_removed_head_does_nothing(runs):
    model = Translator.from_preset(runs[1]).model
    kernels = head_roles.output_kernels(model)
    assert list(kernels) == ["encoder 1", "encoder 2", "decoder 1", "cross 1", "decoder 2", "cross 2"]
    ids = [np.array([[4, 5, 6, 3], [6, 4, 4, 3]]), np.array([[2, 4, 5], [2, 4, 5]])]
    inputs = dict(zip(("encoder_token_ids", "decoder_token_ids"), ids, strict=True))
    one, other = ops.convert_to_numpy(model(inputs))
    assert not np.allclose(one, other, atol=1e-4)
    for name, kernel in kernels.items():
        if name.startswith("cross"):
            head_roles.remove(
                {name: kernel}, {name: ops.convert_to_numpy(kernel)}, [f"{name}, head 1", f"{name}, head 2"]
            )
    one, other = ops.convert_to_numpy(model(inputs))
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_the_table_of_the_lecture_is_that_of_the_report():
    """The role whose share is most above that of equal weights, both shares, and the BLEU that is lost."""
    report, page = (ROOT / name for name in ("recipes/reports/phrases-en-fr/head_roles.json", "docs/lecture/heads.md"))
    report, page = json.loads(report.read_text("utf-8")), page.read_text("utf-8")
    even, heads = report["rows"][:3], report["rows"][3:]
    for row in heads:
        equal = next(one for one in even if row["name"].startswith(one["name"].partition(",")[0]))
        above = {role: row[role] - equal[role] for role in head_roles.ROLES if row[role] is not None}
        role = max(above, key=above.get)
        lost = row["bleu"] - report["complete"]["score"]
        assert f"| {row['name']} | {role} | {row[role]:.1f} | {equal[role]:.1f} | {lost:+.2f} |" in page
    assert len(re.findall(r"^\|.*, head \d", page, flags=re.M)) == len(heads)
    pruned = [f"{row['bleu']:.1f}" for row in report["pruned"]]
    quoted = re.search(r"without 6, 12 and 18 heads ([\d.]+), ([\d.]+) and ([\d.]+) BLEU", page).groups()
    assert quoted == tuple(pruned[n - 1] for n in (6, 12, 18))
    assert f"{report['complete']['score']:.1f} BLEU" in page
    assert f"{report['measured']} sentences" in page
