"""The published algorithms: one function each, which returns a recipe.

The decorator `register` adds a function to `RECIPES` under the name of its recipe. Imports from
`thalweg.recipes`, the command line and the documentation use this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec

from thalweg.aggregation import (
    Adaptive,
    Buffered,
    BySamples,
    ByWeight,
    Equal,
    FedAcg,
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedExp,
    FedYogi,
    Flash,
    PolynomialDiscount,
    ShiftAware,
    Step,
)
from thalweg.bank import (
    Centralised,
    FedDaa,
    FedDrift,
    FedRc,
    FineTuned,
    Ifca,
    OnePerClient,
    Oracle,
)
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.local import (
    Continuous,
    Curvature,
    Elastic,
    Moon,
    NotTrue,
    PNorm,
    PolynomialDecay,
    Proximal,
    Scaffold,
    TwoTeachers,
)
from thalweg.memory import Dds, Drsr, Fifo, Importance, Ode, Replace, UniformRatio
from thalweg.recipes.base import Recipe
from thalweg.sample_weights import Early, OldAndNew
from thalweg.selection import Dpcs, PowerOfChoice, Uniform
from thalweg.sessions import Average, WarmStart

P = ParamSpec("P")
RECIPES: dict[str, Callable[..., Recipe]] = {}


def register(make: Callable[P, Recipe]) -> Callable[P, Recipe]:
    """Add a function that returns a recipe to `RECIPES`, under the name of its default recipe."""
    RECIPES[make().name] = make  # type: ignore[call-arg]  # all parameters have defaults
    return make


def get_recipe(name: str) -> Recipe:
    """Return a published recipe by name, or a combination ``host+guest``.

    A guest replaces the stages of the host in which it differs from FedAvg: ``fedprox+sfedpo`` has
    the objective of FedProx and the memory and weights of SFedPO; ``drsr+flash`` has the memory of
    DRSR and the server rule of Flash. There may be several guests if they change different stages.

    >>> combined = get_recipe("fedprox+sfedpo")
    >>> parts = (combined.memory, combined.objective, combined.weights)
    >>> tuple(type(part).__name__ for part in parts)
    ('Dds', 'Proximal', 'ShiftAware')
    """
    alone, *settings = (part.strip() for part in name.split(","))
    if settings and all("=" in setting for setting in settings):
        options = " ".join(f"--set {setting}" for setting in settings)
        raise ConfigError(
            f"expected the name of one recipe, got {name!r}. Only lists of recipes have settings "
            f"behind commas. Use {alone} {options}, or overrides={settings} in Python."
        )
    names = name.split("+")
    for each in names:
        if each not in RECIPES:
            raise UnknownName("recipe", each, RECIPES, see="thalweg list")
    changed_by: dict[str, str] = {}
    all_changes: dict[str, Any] = {}
    for guest in names[1:]:
        changes = _find_changes(RECIPES[guest]())
        for stage in changes:
            if stage in changed_by:
                raise ConfigError(
                    f"{name}: both {changed_by[stage]} and {guest} change the stage {stage}, which "
                    "can have only one component. Remove one of them."
                )
            changed_by[stage] = guest
        all_changes |= changes
    return replace(RECIPES[names[0]](), **all_changes, name=name)


def _find_changes(recipe: Recipe) -> dict[str, Any]:
    """Return the stages in which a recipe differs from FedAvg.

    A memory without a selection method (half renewed, replaced, or the newest samples) counts only
    if no other stage differs.
    """
    plain, plain_memories = fedavg(), (fedavg().memory, fedogd().memory, Fifo())
    changes = {
        stage: value
        for stage, value in vars(recipe).items()
        if stage not in ("name", "memory") and value != getattr(plain, stage)
    }
    if not changes or recipe.memory not in plain_memories:
        changes["memory"] = recipe.memory
    return changes


@register
def sfedpo(*, budget: float = 0.5, dds: bool = True, saw: bool = True) -> Recipe:
    """SFedPO: a forecast of latent states guides what clients store and how updates are weighted.

    "SFedPO: Streaming federated learning with a prediction oracle under temporal shifts". DDS
    chooses what is stored, SAW weights the updates; each can be switched off.

    Differs from the paper: it gives only ranges for four parameters; docs/recipes/sfedpo.md lists
    our values. On data without known latent states, the states are learned (`forecast.Auto`).
    """
    return Recipe(
        name="sfedpo",
        memory=Dds(budget=budget, offset=0.35) if dds else UniformRatio(budget=budget),
        weights=ShiftAware(slope=2.0) if saw else Equal(),
    )


# --- FedAvg and variants of its objective and server rule; SFedPO can be added to each ---


@register
def fedavg(*, budget: float = 0.5) -> Recipe:
    """FedAvg: clients train on their memory, and the server averages their updates.

    McMahan et al., "Communication-efficient learning of deep networks from decentralized data",
    2017.

    Differs from the paper: data arrive as streams, so a fixed share of each memory (`budget`) is
    renewed at every tick, and all updates have equal weight.
    """
    return Recipe(name="fedavg", memory=UniformRatio(budget=budget))


@register
def static(*, share: float = 0.25) -> Recipe:
    """Static: FedAvg in the first part of the run (`share`); then the model does not change.

    The baseline without adaptation of Gama et al., "A survey on concept drift adaptation", 2014.
    """
    return replace(fedavg(), name="static", sample_weights=Early(share))


@register
def local_only() -> Recipe:
    """Local only: each client trains its own model on its own samples, without communication.

    A baseline of Yu, Bagdasaryan, Shmatikov, "Salvaging federated learning by local adaptation",
    2020. Each present client trains in every round. `client_accuracy` is the mean over clients of
    the accuracy of the client's model on test data like the client's own. `prequential_accuracy`
    is that of the client's model on arriving samples, before it trains on them. Both are
    comparable with other recipes. `accuracy` is the mean over all clients' models of the accuracy
    on the whole test set. Metrics count 0 bytes.
    """
    return replace(fedavg(), name="local-only", bank=OnePerClient())


@register
def fine_tuned() -> Recipe:
    """Fine-tuned: FedAvg, and each client predicts with the result of its own local steps.

    Wang et al., "Federated evaluation of on-device personalization", 2019. Training and
    communication are those of FedAvg. Each client is evaluated with the model that it had after
    its last local steps, and with the global model if it has never trained: `client_accuracy` on
    test data like the client's own, `prequential_accuracy` on arriving samples before it trains on
    them, and `accuracy` on the whole test set; means over clients.
    """
    return replace(fedavg(), name="fine-tuned", bank=FineTuned())


@register
def centralised() -> Recipe:
    """Centralised: one learner trains on the samples of all clients, with as many steps as they.

    The usual upper bound, as in McMahan et al., "Communication-efficient learning of deep networks
    from decentralized data", 2017. The samples of all present clients are collected in one place,
    in a memory with the capacity of all clients together. The metrics have the same meaning as
    those of FedAvg: one model is evaluated for each client. `bytes_up` counts samples.
    """
    return replace(fedavg(), name="centralised", bank=Centralised())


@register
def fedprox(*, strength: float = 0.1) -> Recipe:
    """FedProx: FedAvg with a penalty on the distance of a client's model from the received model.

    Li et al., "Federated optimization in heterogeneous networks", 2020.
    """
    return replace(fedavg(), name="fedprox", objective=Proximal(strength))


@register
def fedcurv(*, strength: float = 0.01) -> Recipe:
    """FedCurv: FedAvg that penalises moving parameters important to other clients.

    Shoham et al., "Overcoming forgetting in federated learning on non-IID data", 2019.
    """
    return replace(fedavg(), name="fedcurv", objective=Curvature(strength))


@register
def fedntd(*, strength: float = 1.0) -> Recipe:
    """FedNTD: FedAvg with distillation of the global model's non-true-class probabilities.

    Lee et al., "Preservation of the global knowledge by not-true distillation in federated
    learning", 2022.
    """
    return replace(fedavg(), name="fedntd", objective=NotTrue(strength))


@register
def fedexp(*, floor: float = 1e-3) -> Recipe:
    """FedExP: FedAvg with a larger server step the more the clients' updates differ.

    Jhunjhunwala et al., "FedExP: Speeding up federated averaging via extrapolation", 2023.
    """
    return replace(fedavg(), name="fedexp", server=FedExp(floor))


@register
def scaffold() -> Recipe:
    """SCAFFOLD: FedAvg with local steps corrected towards the mean gradient of all clients.

    Karimireddy et al., "SCAFFOLD: Stochastic controlled averaging for federated learning", 2020.
    """
    return replace(fedavg(), name="scaffold", objective=Scaffold())


@register
def scaffold_released(*, server_lr: float = 0.03, floor: float = 0.9) -> Recipe:
    """SCAFFOLD as in the released code of a study: uncorrected local steps and a short server step.

    Chang et al., "Federated learning with dynamic client arrival and departure", 2025; for
    reproducing its tables. Its server multiplies the mean update by the clients' learning rate:
    `server_lr` and the server's decay must equal ``local.lr`` and ``local.decay``.
    """
    decay = PolynomialDecay(power=0.9, floor=floor)
    return replace(
        fedavg(),
        name="scaffold-released",
        objective=Scaffold("as_released"),
        server=Step(lr=server_lr, decay=decay),
    )


@register
def fedacg(*, momentum: float = 0.85, strength: float = 0.01) -> Recipe:
    """FedACG: server momentum.

    Clients start from the predicted next model and are pulled towards it.

    Kim, Kim, Han, "Communication-efficient federated learning with accelerated client gradient",
    2024.
    """
    return replace(fedavg(), name="fedacg", objective=Proximal(strength), server=FedAcg(momentum))


@register
def fedavgm(*, momentum: float = 0.9, lr: float = 1.0) -> Recipe:
    """FedAvgM: FedAvg with momentum at the server.

    Hsu, Qi, Brown, "Measuring the effects of non-identical data distribution for federated visual
    classification", 2019.
    """
    return replace(fedavg(), name="fedavgm", server=FedAvgM(momentum, lr))


@register
def fedadam(*, lr: float = 0.01) -> Recipe:
    """FedAdam: FedAvg whose server takes an Adam step in the direction of the mean update.

    Reddi et al., "Adaptive federated optimization", 2021.
    """
    return replace(fedavg(), name="fedadam", server=FedAdam(lr))


@register
def fedyogi(*, lr: float = 0.01) -> Recipe:
    """FedYogi: FedAvg whose server takes a Yogi step; like FedAdam, but its step changes slowly.

    Reddi et al., "Adaptive federated optimization", 2021.
    """
    return replace(fedavg(), name="fedyogi", server=FedYogi(lr))


@register
def fedadagrad(*, lr: float = 0.1) -> Recipe:
    """FedAdagrad: FedAvg whose server takes an Adagrad step, which shrinks during the run.

    Reddi et al., "Adaptive federated optimization", 2021.
    """
    return replace(fedavg(), name="fedadagrad", server=FedAdagrad(lr))


@register
def fedbuff(*, size: int = 10, lr: float = 1.0) -> Recipe:
    """FedBuff: the server collects updates, also late ones, and steps when enough have arrived.

    Nguyen et al., "Federated learning with buffered asynchronous aggregation", 2022.

    Differs from the paper: time consists of rounds; see `aggregation.Buffered`.
    """
    server, staleness = Buffered(size, lr), PolynomialDiscount(power=0.5)
    return replace(fedavg(), name="fedbuff", server=server, staleness=staleness)


@register
def moon(*, strength: float = 1.0, temperature: float = 1.0) -> Recipe:
    """MOON: FedAvg with a contrastive loss that keeps features close to the received model's.

    Li, He, Song, "Model-contrastive federated learning", 2021. The features are also pushed away
    from those of the client's own previous model.
    """
    return replace(fedavg(), name="moon", objective=Moon(strength, temperature))


@register
def continuous(*, strength: float = 1.0) -> Recipe:
    """Continuous: FedAvg with distillation from the last model of the previous session.

    A baseline of Chang et al., "Federated learning with dynamic client arrival and departure",
    2025.
    """
    return replace(fedavg(), name="continuous", objective=Continuous(strength))


# --- training only on the newest samples ---


@register
def fedogd() -> Recipe:
    """FedOGD: online gradient descent; each client trains only on the samples that just arrived.

    Kwon, Park, Hong, "Tighter regret analysis and optimization of online federated learning", 2023.
    """
    return Recipe(name="fedogd", memory=Replace())


@register
def fedomd(*, p: float = 1.99) -> Recipe:
    """FedOMD: online mirror descent; FedOGD in the geometry of a p-norm.

    Mitra, Hassani, Pappas, "Online federated learning", 2021.
    """
    return replace(fedogd(), name="fedomd", geometry=PNorm(p))


@register
def adaptive_fedavg() -> Recipe:
    """Adaptive-FedAvg: the server adapts the clients' learning rate to the variance of the model.

    Canonaco et al., "Adaptive federated learning in presence of concept drift", 2021.
    """
    return replace(fedogd(), name="adaptive-fedavg", server=Adaptive())


@register
def feddrift() -> Recipe:
    """FedDrift: a bank of models; drifted clients get a new model, and similar models are merged.

    Jothimurugesan et al., "Federated learning under distributed concept drift", 2023.
    """
    return replace(fedogd(), name="feddrift", bank=FedDrift())


@register
def flash() -> Recipe:
    """Flash: an adaptive server step that becomes larger when the updates change.

    Panchal et al., "Flash: Concept drift adaptation in federated learning", 2023.

    Differs from the paper: clients do not stop early; ``stopping=gain-threshold`` adds this part.
    """
    return replace(fedogd(), name="flash", server=Flash())


@register
def fedewc(*, strength: float = 0.1) -> Recipe:
    """FedEWC: FedOGD that penalises moving parameters important in the previous latent state.

    Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", 2017.

    Differs from the paper: each client applies it to its own stream.
    """
    return replace(fedogd(), name="fedewc", objective=Elastic(strength))


@register
def flwf_2t() -> Recipe:
    """FLwF-2T: FedOGD with distillation from the client's past model and the global model.

    Usmanova et al., "A distillation-based approach integrating continual learning and federated
    learning for pervasive services", 2021.
    """
    return replace(fedogd(), name="flwf-2t", objective=TwoTeachers())


# --- concept drift: banks of several models, and the baseline with one ---


@register
def fedavg_retrain(*, participation: float = 0.5) -> Recipe:
    """FedAvg with retraining: one model that is trained on the newest samples only.

    A baseline of Peng, Tang, "FedDAA: Dynamic client clustering for concept drift adaptation in
    federated learning", 2025.
    """
    return Recipe(
        name="fedavg-retrain",
        memory=Replace(),
        selection=Uniform(participation),
        weights=BySamples(),
    )


@register
def feddrift_eager() -> Recipe:
    """FedDrift-Eager: all clients that drift at the same time share one new model; no merging.

    Jothimurugesan et al., "Federated learning under distributed concept drift", 2023.
    """
    return replace(feddrift(), name="feddrift-eager", bank=FedDrift(eager=True))


@register
def ifca(*, models: int = 2) -> Recipe:
    """IFCA: a fixed number of models; each client trains the one with the smallest loss.

    Ghosh et al., "An efficient framework for clustered federated learning", 2020.
    """
    return replace(fedogd(), name="ifca", bank=Ifca(models))


@register
def fedrc(*, num_models: int = 2, participation: float = 0.5) -> Recipe:
    """FedRC: clients train several models and split their samples among them by robust clustering.

    Guo, Tang, Lin, "FedRC: Tackling diverse distribution shifts challenge in federated learning by
    robust clustering", 2024.
    """
    return Recipe(
        name="fedrc",
        memory=Replace(),
        selection=Uniform(participation),
        weights=ByWeight(),
        bank=FedRc(num_models),
    )


@register
def feddaa(*, participation: float = 0.5, aggregate_by_responsibility: bool = False) -> Recipe:
    """FedDAA: FedRC in time steps, with one model per concept.

    Only drifted clients drop old samples.

    Peng, Tang, "FedDAA: Dynamic client clustering for concept drift adaptation in federated
    learning",
    2025. With `aggregate_by_responsibility`, updates are weighted by the samples that a model
          explains
    instead of the samples that it was trained on.
    """
    return Recipe(
        name="feddaa",
        memory=Fifo(),
        selection=Uniform(participation),
        weights=ByWeight(basis="explained" if aggregate_by_responsibility else "learnt"),
        bank=FedDaa(),
    )


@register
def oracle(*, participation: float = 0.5) -> Recipe:
    """Oracle: one model for each true concept, with known drifts; an upper bound for the others.

    A bound of Peng, Tang, "FedDAA: Dynamic client clustering for concept drift adaptation in
    federated learning", 2025.
    """
    return Recipe(
        name="oracle",
        memory=Fifo(),
        selection=Uniform(participation),
        weights=ByWeight(),
        bank=Oracle(),
    )


# --- which samples clients keep ---


@register
def importance_sampling(*, budget: float = 0.5) -> Recipe:
    """IS: clients keep the samples with the largest gradients.

    Li et al., "Sample-level data selection for federated learning", 2021.

    Differs from the paper: it follows the idea of the paper, not its exact procedure.
    """
    return Recipe(name="is", memory=Importance(budget))


@register
def ode() -> Recipe:
    """ODE: clients keep the samples whose gradients agree with the mean gradient of all clients.

    Gong et al., "To store or not? Online data selection for federated learning with limited
    storage", 2023. Each class has the same number of slots; without this part of the method:
    ``memory.quotas=none``.
    """
    return Recipe(name="ode", memory=Ode())


@register
def drsr() -> Recipe:
    """DRSR: clients replace a decreasing share of memory, so that it follows the whole stream.

    Wang, Bian, Xu, "On the local cache update rules in streaming federated learning", 2023. The
    other interpretation of the paper, which matches class histograms, is ``memory.mode=match``.
    """
    return Recipe(name="drsr", memory=Drsr())


@register
def srsr(*, ratio: float = 0.2) -> Recipe:
    """SRSR: clients replace a fixed share of their memory at every tick.

    Wang, Bian, Xu, "On the local cache update rules in streaming federated learning", 2023.
    """
    return Recipe(name="srsr", memory=UniformRatio(budget=ratio))


# --- stored data and streaming data ---


@register
def stream_ours(*, ratio: float | None = None) -> Recipe:
    """Data streams: weights of stored and streaming samples that minimise a generalisation bound.

    Marfoq, Neglia, Kameni, Vidal, "Federated learning for data streams", 2023.
    """
    return Recipe(
        name="stream-ours", memory=Fifo(), sample_weights=OldAndNew(ratio=ratio), weights=ByWeight()
    )


@register
def stream_uniform() -> Recipe:
    """Data streams, uniform: every sample of the run has the same total weight.

    A baseline of Marfoq et al., "Federated learning for data streams", 2023.
    """
    return replace(stream_ours(), name="stream-uniform", sample_weights=OldAndNew("uniform"))


@register
def stream_historical() -> Recipe:
    """Data streams, historical: only clients with stored data train.

    A baseline of Marfoq et al., "Federated learning for data streams", 2023.
    """
    return replace(stream_ours(), name="stream-historical", sample_weights=OldAndNew("historical"))


@register
def stream_fresh() -> Recipe:
    """Data streams, fresh: only clients with streaming data train.

    A baseline of Marfoq et al., "Federated learning for data streams", 2023.
    """
    return replace(stream_ours(), name="stream-fresh", sample_weights=OldAndNew("fresh"))


# --- which clients are chosen ---


@register
def dpcs(*, participation: float = 0.3) -> Recipe:
    """DPCS: clients are sampled such that the labels of the cohort are balanced.

    Song, Huang, Wu, Lu, "A data-aware probabilistic client sampling scheme in streaming federated
    learning".
    """
    return Recipe(name="dpcs", memory=Fifo(), selection=Dpcs(participation))


@register
def powd(*, participation: float = 0.3) -> Recipe:
    """Power-of-choice: of a random set of candidates, the clients with the largest loss are chosen.

    Cho, Wang, Joshi, "Towards understanding biased client selection in federated learning", 2022.
    """
    return Recipe(name="powd", memory=Fifo(), selection=PowerOfChoice(participation))


# --- the first model of a session ---


@register
def warmstart(*, scale: float = 10.0) -> Recipe:
    """Warm start: initialise a session with a similarity-weighted average of past sessions' models.

    Chang et al., "Federated learning with dynamic client arrival and departure: Convergence and
    rapid adaptation via initial model construction", 2025.
    """
    return replace(fedavg(), name="warmstart", session_start=WarmStart(scale=scale))


@register
def average_start() -> Recipe:
    """Average: initialise a session with the plain average of past sessions' models.

    A baseline of Chang et al., "Federated learning with dynamic client arrival and departure:
    Convergence and rapid adaptation via initial model construction", 2025.
    """
    return replace(fedavg(), name="average-start", session_start=Average())


if not TYPE_CHECKING:
    __all__ = [make.__name__ for make in RECIPES.values()]
