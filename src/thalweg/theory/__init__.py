"""Bounds and closed forms as pure functions, for planning and for tests.

SFedPO: a client's stream visits latent states with probabilities `probs`; in each state it renews a
share `ratios` of its memory, on average its `budget`; states have an `importance` in the global
objective and a `heterogeneity`. All are arrays with one entry per state.

Data streams (Marfoq, Neglia, Kameni and Vidal): `historical` clients have all their data before the
first round; the data of fresh clients arrive over time. Clients have `shares` of all samples of the
run and an `importance` in training. All are arrays with one entry per client.

DPCS (Song, Huang, Wu and Lu): clients with different label distributions are sampled so that the
expected label distribution is close to a `goal`.

Drift (FedRC; FedDAA, Peng and Tang): a bank of models with `responsibilities` for each sample;
`prototypes` of clients, the number of clusters among them, and the clients whose cluster has
changed.

Dynamic arrival and departure (Chang et al.): a session starts with a weighted mean of past models;
the weights depend on the similarity of the sessions' fingerprints.

Serving: a client weights J predictors by their `losses`, with a rate `eta` and a share `alpha` of
all weights that is divided equally after each sample.

Robust aggregation: `values` are the updates of clients, one row each, some of which may be
adversarial.
"""

from thalweg.theory.belief import (
    Posterior,
    mix_posteriors,
    nested_posteriors,
    perturb,
    posterior,
)
from thalweg.theory.blend import blend_distances, blend_weights, softmin
from thalweg.theory.bound import SfedpoBound, b_term, sfedpo_bound
from thalweg.theory.clusters import Clustering, cluster, count_clusters, silhouettes
from thalweg.theory.dds import dds_ratios, dds_scores
from thalweg.theory.dds_exact import dds_objective, dds_ratios_exact
from thalweg.theory.dds_stationary import dds_ratios_stationary, stationary_distance
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
from thalweg.theory.label_conflict import (
    differ_significantly,
    label_conflict,
    mean_errors,
    merge_agreeing,
)
from thalweg.theory.masked_sums import from_fixed, recover_secret, split_secret, to_fixed
from thalweg.theory.mixture import kernel_mismatch, long_run_mixture, mismatch, mixture_step
from thalweg.theory.oracle import OracleGap, oracle_gap
from thalweg.theory.privacy import gaussian_delta, gaussian_epsilon
from thalweg.theory.privacy_account import (
    PrivacyCost,
    gaussian_rdp,
    laplace_rdp,
    rdp_epsilon,
    sampled_gaussian_rdp,
)
from thalweg.theory.prototypes import (
    class_means,
    fill_missing,
    pooled_variance,
    prototypes,
    row_distances,
)
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
from thalweg.theory.tracking import (
    FixedShare,
    SharingRates,
    fixed_share,
    fixed_shares,
    mix_regret_bound,
    optimal_alpha,
    optimal_eta,
    optimal_rates,
    tracking_regret_bound,
)

__all__ = [  # noqa: RUF022  in the order of the round
    # latent states
    "divergence_from_uniform",  # distance of a class histogram from a balanced one
    "divergence_between",  # distance between two class histograms
    "posterior",  # state probabilities estimated from counts
    "nested_posteriors",  # the same for several discounts of the past
    "mix_posteriors",  # their mixture
    "Posterior",  # their mean and variance
    "perturb",  # state probabilities with noise
    # memory
    "dds_scores",  # score of each state in DDS
    "dds_ratios",  # share of the memory renewed in each state, within the budget
    "dds_ratios_exact",  # the same by solving the underlying program
    "dds_objective",  # the objective of that program
    "stationary_distance",  # expected distance of a memory from a goal in the long run
    "dds_ratios_stationary",  # the ratios that minimise it, without tunables
    "mixture_step",  # contents of a memory after one more tick
    "long_run_mixture",  # average contents in the long run
    # heterogeneity of a memory
    "retention",  # share of the initial contents that survives a round
    "weighted_heterogeneity",  # heterogeneity of the stored states
    "mixture_variance",  # variance of the memory's mixture
    "mismatch",  # distance of the long-run mixture from the goal
    "kernel_mismatch",  # the same for similar states
    "heterogeneity_score",  # combined score of a client
    # aggregation weights
    "saw_weights",  # weights of the participants of a round
    "saw_weights_exact",  # the same by minimising the bound
    # robust aggregation
    "weighted_median",  # coordinate-wise weighted median
    "trimmed_mean",  # coordinate-wise trimmed mean
    "clip_rows",  # rows clipped to a norm
    "row_norms",  # norms of updates
    "krum",  # updates with the smallest Krum scores
    "krum_scores",  # distance of each update to its nearest neighbours
    "squared_distances",  # between all updates
    # differential privacy
    "gaussian_epsilon",  # privacy loss after some noisy updates
    "gaussian_delta",  # the inverse function
    "PrivacyCost",  # of several releases with Gaussian and Laplace noise
    "gaussian_rdp",  # Renyi divergence of a release with Gaussian noise
    "sampled_gaussian_rdp",  # the same if its clients are drawn
    "laplace_rdp",  # of a release with Laplace noise
    "rdp_epsilon",  # privacy loss from Renyi divergences
    # choice among predictors
    "fixed_share",  # weights that follow the best predictor as it changes
    "fixed_shares",  # those of several forecasters
    "FixedShare",  # weights before and after the samples, and mix losses
    "mix_regret_bound",  # bound of the mix loss for a number of switches
    "tracking_regret_bound",  # bound of the weighted mean loss
    "optimal_alpha",  # the share that minimises both
    "optimal_eta",  # the rate that minimises the second one
    "optimal_rates",  # both for long runs
    "SharingRates",  # eta and alpha
    # secure aggregation
    "to_fixed",  # numbers in fixed-point representation
    "from_fixed",  # mean from a fixed-point sum
    "split_secret",  # shares of a secret
    "recover_secret",  # secret from enough shares
    # error bounds of SFedPO
    "b_term",  # the part of the bound that ratios and weights change
    "sfedpo_bound",  # the whole bound, and violated preconditions
    "SfedpoBound",  # value and violated preconditions
    "oracle_gap",  # cost of a wrong forecast
    "OracleGap",  # the cost, the error, and the effective budgets
    # data streams: importance of stored and streaming data
    "psi",  # the part of the bound that importance changes
    "optimal_importance",  # the minimising importance of each client
    "historical_mass",  # the same in closed form for fresh clients of equal size
    "grid_importance",  # importance for a given mass of the historical clients
    "importance_ratio",  # the constant of the bound, from measurable quantities
    "effective_samples",  # equivalent number of equally important samples
    "target_bias",  # cost of training towards other weights than the objective's
    "share_distance_bound",  # bound on the distance between importance and shares
    "gradient_variability",  # distance between the gradients of rounds and of the objective
    # client sampling
    "dpcs_probabilities",  # sampling probabilities for an expected label distribution
    # banks of models
    "responsibilities",  # share of each model in each sample
    "client_mixture",  # a client's mixture of models
    "label_mass",  # mass of each label per model
    "label_priors",  # label distribution per model
    "fedrc_objective",  # the objective of FedRC
    # drift detection
    "pooled_variance",  # of the outputs of a class
    "prototypes",  # mean output of a model per class
    "fill_missing",  # treatment of missing classes
    "class_means",  # mean prototype of each class
    "row_distances",  # distances over the classes that both have
    "count_clusters",  # number of clusters
    "cluster",  # clustering with a given number
    "Clustering",  # clusters, centres and scores
    "silhouettes",  # fit of each point to its cluster
    "label_conflict",  # contradictory labels of two groups of clients
    "differ_significantly",  # whether two groups of prototypes differ by more than chance
    "mean_errors",  # standard errors of means of prototypes
    "merge_agreeing",  # clusters of clients without contradictory labels
    "real_drift",  # clients whose nearest centre has changed
    "RealDrift",  # the nearest centres before and after
    "nearest_centre",  # nearest centre of each point
    "precision_recall",  # quality of drift detection
    # session starts
    "blend_weights",  # weight of each past session's model
    "blend_distances",  # distances between a session and past ones
    "softmin",  # weights from distances
    "session_lr_bound",  # the theorem's condition on the learning rate
]
