"""Bounds and closed forms as plain functions, for planning and for tests. No state, no randomness.

SFedPO: a client's stream visits latent states with probabilities `probs`; in each state it renews a
share `ratios` of its memory, on average its `budget`; states have an `importance` in the global
objective and a `heterogeneity`. All are rows with one entry per state.

Data streams (Marfoq, Neglia, Kameni and Vidal): some clients are `historical`, they have all their
data before the first round; those of the others are fresh and pass by. Clients have `shares` of all
samples of the run and an `importance` in training. All are rows with one entry per client.

DPCS (Song, Huang, Wu and Lu): clients with different label mixes are drawn so that a `goal` comes
about.

Drift (FedRC; FedDAA, Peng and Tang): a bank of models, `responsibilities` of each for each sample;
`prototypes` of clients, how many clusters they form, and whose has moved to another one.

Clients that come and go (Chang et al.): a session begins with a mean of the models of past ones, by
how much its fingerprint resembles theirs.

Trust nobody: `values` are the updates of clients, a row each, some of which may be hostile.
"""

from thalweg.theory.belief import Posterior, perturb, posterior
from thalweg.theory.blend import blend_distances, blend_weights, softmin
from thalweg.theory.bound import SfedpoBound, b_term, sfedpo_bound
from thalweg.theory.clusters import Clustering, cluster, count_clusters, silhouettes
from thalweg.theory.dds import dds_ratios, dds_scores
from thalweg.theory.dds_exact import dds_objective, dds_ratios_exact
from thalweg.theory.divergence import divergence_between, divergence_from_uniform
from thalweg.theory.dpcs import dpcs_probabilities
from thalweg.theory.fedrc import (
    client_mixture,
    fedrc_objective,
    label_mass,
    label_priors,
    responsibilities,
)
from thalweg.theory.heterogeneity import (
    heterogeneity_score,
    mixture_variance,
    retention,
    weighted_heterogeneity,
)
from thalweg.theory.importance import (
    grid_importance,
    historical_mass,
    optimal_importance,
    psi,
)
from thalweg.theory.masked_sums import from_fixed, recover_secret, split_secret, to_fixed
from thalweg.theory.mixture import kernel_mismatch, long_run_mixture, mismatch, mixture_step
from thalweg.theory.oracle import OracleGap, oracle_gap
from thalweg.theory.privacy import gaussian_delta, gaussian_epsilon
from thalweg.theory.prototypes import class_means, fill_missing, prototypes, row_distances
from thalweg.theory.real_drift import RealDrift, nearest_centre, precision_recall, real_drift
from thalweg.theory.robust import (
    clip_rows,
    krum,
    krum_scores,
    row_norms,
    squared_distances,
    trimmed_mean,
    weighted_median,
)
from thalweg.theory.saw import saw_weights
from thalweg.theory.saw_exact import saw_weights_exact
from thalweg.theory.session_bound import session_lr_bound
from thalweg.theory.stream_bound import (
    effective_samples,
    gradient_variability,
    importance_ratio,
    share_distance_bound,
    target_bias,
)

__all__ = [  # noqa: RUF022  in the order of the round
    # what is known of the states
    "divergence_from_uniform",  # how far a class histogram is from balanced
    "divergence_between",  # how far two class histograms are from one another
    "posterior",  # state probabilities learned from counts
    "Posterior",  # their mean and variance
    "perturb",  # state probabilities disturbed by noise
    # what a client keeps
    "dds_scores",  # how much each state deserves to be kept
    "dds_ratios",  # share of the memory renewed in each state, on budget
    "dds_ratios_exact",  # the same by solving the underlying program
    "dds_objective",  # the objective of that program
    "mixture_step",  # what a memory holds after one more tick
    "long_run_mixture",  # what it holds on average
    # how well that represents the goal
    "retention",  # how much survives of what a memory held when the round began
    "weighted_heterogeneity",  # heterogeneity of what is kept
    "mixture_variance",  # how much the memory's mixture jumps about
    "mismatch",  # how far the long-run mixture is from the goal
    "kernel_mismatch",  # the same when states resemble each other
    "heterogeneity_score",  # all of it in one number per client
    # how the server weighs
    "saw_weights",  # weights of the participants of a round
    "saw_weights_exact",  # the same by minimising the bound
    # updates of which some may be hostile
    "weighted_median",  # half of the weight on either side, number by number
    "trimmed_mean",  # without the largest and the smallest, number by number
    "clip_rows",  # none longer than a bound
    "row_norms",  # of updates
    "krum",  # the updates in the midst of the others
    "krum_scores",  # how far each is from its nearest
    "squared_distances",  # between all of them
    # what noise hides
    "gaussian_epsilon",  # what a client has disclosed after some noisy updates
    "gaussian_delta",  # the same the other way round
    # sums of which nobody sees the parts
    "to_fixed",  # numbers as whole ones
    "from_fixed",  # and the mean of many
    "split_secret",  # a secret in shares
    "recover_secret",  # and out of some of them
    # what it adds up to
    "b_term",  # the part of the bound that ratios and weights can change
    "sfedpo_bound",  # the whole bound, and which of its preconditions fail
    "SfedpoBound",  # value and violated preconditions
    "oracle_gap",  # what a wrong forecast costs
    "OracleGap",  # the cost, the error, the budgets really spent
    # data streams: how much static and passing data should count
    "psi",  # the part of the bound that importance can change
    "optimal_importance",  # the importance of each client that minimises it
    "historical_mass",  # the same in closed form, for fresh clients of equal size
    "grid_importance",  # importance for a given mass of the historical clients
    "importance_ratio",  # the one constant it depends on, from what can be measured
    "effective_samples",  # as how many equally important samples they count
    "target_bias",  # what it costs to train towards other weights than the objective's
    "share_distance_bound",  # a smooth bound on how far importance is from the shares
    "gradient_variability",  # how far the gradients of the rounds are from the objective's
    # whom to draw
    "dpcs_probabilities",  # of each client, so that the expected label mix is a goal
    # a bank of models, and who uses which
    "responsibilities",  # to which part each model explains each sample
    "client_mixture",  # a client's mixture of models
    "label_mass",  # what each model explains of each label
    "label_priors",  # how those labels are distributed
    "fedrc_objective",  # what the method maximises
    # whose concept has changed
    "prototypes",  # what a model answers to the samples of each class, on average
    "fill_missing",  # what to do about classes that a client does not have
    "class_means",  # the mean prototype of each class
    "row_distances",  # how far prototypes are apart, over the classes that both have
    "count_clusters",  # how many concepts there are
    "cluster",  # the same with a given number
    "Clustering",  # clusters, centres and scores
    "silhouettes",  # how well each point suits its cluster
    "real_drift",  # whose nearest centre is another one now
    "RealDrift",  # the nearest centres before and now
    "nearest_centre",  # of some points
    "precision_recall",  # how well drifts were detected
    # with which model a session of other clients begins
    "blend_weights",  # what the model of each past session counts
    "blend_distances",  # how far a session is from past ones
    "softmin",  # distances as weights
    "session_lr_bound",  # the theorem's condition on the learning rate; a diagnostic
]
