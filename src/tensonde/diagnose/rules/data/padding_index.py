"""An embedding whose padding index marks a real word."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding


@rule("padding-index-is-a-word", severity="error", phase="forward")
def is_a_word(case: Case) -> list[Finding]:
    """An embedding keeps the row of its `padding_idx` at zero and never trains it, but the rows of ids it gets show
    that a different id is the padding: in every batch, it stands in runs of differing length at one end, and nowhere
    else. The padding index itself never ends a row like that; it stands in the middle, between other words, again and
    again.

    An index that merely stands in the middle is not enough: an unknown or missing value may well share its row with
    padding.
    """
    found = []
    for seen in case.facts.tokens:
        other = seen.other
        if seen.padding_idx < 0 or other is None or other < 0 or seen.looks < 5 or len(seen.lengths) < 3:
            continue
        if 4 * seen.padded < seen.rows or 10 * seen.inside < seen.rows or 4 * seen.ends > seen.padded:
            continue
        fact = case.module(seen.module)
        found.append(
            case.finding(
                (
                    f"padding_idx={seen.padding_idx} of {seen.module} marks a real word, whose vector stays zero: {seen.inside} of "
                    f"{seen.rows} rows have it between other words; the padding is {other}"
                ),
                f"Pass padding_idx={other}, or none.",
                site=f"{seen.module}:out",
                source=fact.made,
                evidence={
                    "padding_idx": seen.padding_idx,
                    "rows": seen.rows,
                    "rows_with_it_between_words": seen.inside,
                    "rows_that_end_in_it": seen.ends,
                    "rows_padded_with_the_other": seen.padded,
                    "the_other": other,
                },
                confidence=0.9,
            )
        )
    return found[:1]
