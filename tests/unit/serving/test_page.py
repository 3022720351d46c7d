"""The page of a server as a file."""

import re


def test_the_page_is_whole_and_needs_nothing_from_elsewhere():
    from keras_attn.serving.server import page  # and TensorFlow

    text, policy = page("<b>&</b>")
    assert text.count("<h1>&lt;b&gt;&amp;&lt;/b&gt;</h1>") == 1
    assert "of word_alignment.html" not in text
    assert not re.search(r"https?:|//[a-z]|url\(|@import|\b(src|href)=(?!\"data:,\")", text)
    assert policy.startswith("default-src 'none'; connect-src 'self';")
    assert policy.count("'sha256-") == 4
