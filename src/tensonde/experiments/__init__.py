"""Diagnosis by experiment: questions that are asked of a step of the training, which is computed again with one thing changed.

`step` is what an adapter serves, `experiment` what an experiment is, `anatomy` what experiments know of a step; every other file is
one experiment.
"""

from __future__ import annotations

from tensonde.experiments.bootstrap import BOOTSTRAP
from tensonde.experiments.columns import COLUMNS_DIFFER
from tensonde.experiments.companions import COMPANIONS
from tensonde.experiments.dead_ends import DEAD_ENDS
from tensonde.experiments.each_term import EACH_TERM
from tensonde.experiments.experiment import Experiment
from tensonde.experiments.fields import FIELDS
from tensonde.experiments.independence import INDEPENDENCE
from tensonde.experiments.influence import INFLUENCE
from tensonde.experiments.lags import LAGS
from tensonde.experiments.leak import LEAK
from tensonde.experiments.modes import MODES
from tensonde.experiments.nothing_learnt import NOTHING_LEARNT
from tensonde.experiments.odd_field import ODD_FIELD
from tensonde.experiments.opposites import OPPOSITES
from tensonde.experiments.own_batch import OWN_BATCH
from tensonde.experiments.pairs import PAIRS
from tensonde.experiments.placement import PLACEMENT
from tensonde.experiments.reach import REACH
from tensonde.experiments.reward import REWARD
from tensonde.experiments.sameness import SAMENESS
from tensonde.experiments.signs import SIGNS
from tensonde.experiments.sizes import SIZES
from tensonde.experiments.terms import TERMS
from tensonde.experiments.truth import TRUTH
from tensonde.experiments.use import USE

EXPERIMENTS: tuple[Experiment, ...] = (
    FIELDS,
    COLUMNS_DIFFER,
    COMPANIONS,
    TERMS,
    EACH_TERM,
    SIZES,
    PLACEMENT,
    NOTHING_LEARNT,
    SIGNS,
    LEAK,
    REACH,
    BOOTSTRAP,
    REWARD,
    PAIRS,
    LAGS,
    ODD_FIELD,
    OPPOSITES,
    SAMENESS,
    OWN_BATCH,
    INDEPENDENCE,
    INFLUENCE,
    DEAD_ENDS,
    TRUTH,
    MODES,
    USE,
)
"""In the order asked."""
