"""The ids that open every vocabulary, and the characters that count as blank."""

PAD_ID, UNKNOWN_ID, START_ID, END_ID = 0, 1, 2, 3
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
# Unicode's White_Space, written out: Python's str.split, its \s, RE2's \s and C's isspace all differ.
BLANKS = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
