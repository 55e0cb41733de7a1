"""The published algorithms: one function each, returning a recipe."""

from __future__ import annotations

from dataclasses import replace

from thalweg.aggregation import (
    Adaptive,
    BySamples,
    ByWeight,
    Equal,
    FedAcg,
    FedExp,
    Flash,
    ShiftAware,
    Step,
)
from thalweg.bank import FedDaa, FedDrift, FedRc, Oracle
from thalweg.local import (
    Continuous,
    Curvature,
    Elastic,
    Moon,
    NotTrue,
    PNorm,
    Proximal,
    Scaffold,
    TwoTeachers,
)
from thalweg.memory import Dds, Drsr, Fifo, Importance, Ode, Replace, UniformRatio
from thalweg.recipes.base import Recipe
from thalweg.sample_weights import Early, OldAndNew
from thalweg.selection import Dpcs, PowerOfChoice, Uniform
from thalweg.sessions import Average, WarmStart


def sfedpo(*, budget: float = 0.5, dds: bool = True, saw: bool = True) -> Recipe:
    """SFedPO: a prediction oracle guides what clients store (DDS) and how much they count (SAW).

    "SFedPO: Streaming federated learning with a prediction oracle under temporal shifts". Of its
    four tunables the paper gives only ranges; where we stand in them: docs/recipes/sfedpo.md.
    """
    return Recipe(
        name="sfedpo",
        memory=Dds(budget=budget, offset=0.35) if dds else UniformRatio(budget=budget),
        weights=ShiftAware(slope=2.0) if saw else Equal(),
    )


# --- hosts: a memory of which a fixed share is renewed at every tick; SFedPO can be added ---


def fedavg(*, budget: float = 0.5) -> Recipe:
    """FedAvg on a memory of which a fixed share is renewed at every tick.

    McMahan et al., "Communication-efficient learning of deep networks from decentralized data", 2017.
    """
    return Recipe(name="fedavg", memory=UniformRatio(budget=budget))


def static(*, share: float = 0.25) -> Recipe:
    """Static: FedAvg in the first part of the run, and then the model stays as it is.

    The baseline without adaptation of Gama et al., "A survey on concept drift adaptation", 2014.
    """
    return replace(fedavg(), name="static", sample_weights=Early(share))


def fedprox(*, strength: float = 0.1) -> Recipe:
    """FedProx: FedAvg, and clients do not stray far from the model they received.

    Li et al., "Federated optimization in heterogeneous networks", 2020.
    """
    return replace(fedavg(), name="fedprox", objective=Proximal(strength))


def fedcurv(*, strength: float = 0.01) -> Recipe:
    """FedCurv: FedAvg, and clients spare the parameters that matter to the others.

    Shoham et al., "Overcoming forgetting in federated learning on non-IID data", 2019.
    """
    return replace(fedavg(), name="fedcurv", objective=Curvature(strength))


def fedntd(*, strength: float = 1.0) -> Recipe:
    """FedNTD: FedAvg, and clients keep what the global model thinks of the wrong classes.

    Lee et al., "Preservation of the global knowledge by not-true distillation in federated
    learning", 2022.
    """
    return replace(fedavg(), name="fedntd", objective=NotTrue(strength))


def fedexp(*, floor: float = 1e-3) -> Recipe:
    """FedExP: FedAvg whose server goes farther the more the clients disagree.

    Jhunjhunwala et al., "FedExP: Speeding up federated averaging via extrapolation", 2023.
    """
    return replace(fedavg(), name="fedexp", server=FedExp(floor))


def scaffold() -> Recipe:
    """SCAFFOLD: FedAvg, and every step is corrected by how a client's gradient differs from all others'.

    Karimireddy et al., "SCAFFOLD: Stochastic controlled averaging for federated learning", 2020.
    """
    return replace(fedavg(), name="scaffold", objective=Scaffold())


def scaffold_released(*, server_lr: float = 0.03) -> Recipe:
    """What the code of a study calls SCAFFOLD: steps are not corrected, and the server's is short.

    Chang et al., "Federated learning with dynamic client arrival and departure", 2025; for reproducing its tables.
    Its server multiplies the mean update by the clients' learning rate, which `server_lr` must repeat.
    """
    objective = Scaffold("as_released")
    return replace(
        fedavg(), name="scaffold-released", objective=objective, server=Step(lr=server_lr)
    )


def fedacg(*, momentum: float = 0.85, strength: float = 0.01) -> Recipe:
    """FedACG: the server has momentum, and clients start from where it leads, on a spring.

    Kim, Kim, Han, "Communication-efficient federated learning with accelerated client gradient", 2024.
    """
    return replace(fedavg(), name="fedacg", objective=Proximal(strength), server=FedAcg(momentum))


def moon(*, strength: float = 1.0, temperature: float = 1.0) -> Recipe:
    """MOON: FedAvg, and a client's features are drawn to the received model's, away from its own last one's.

    Li, He, Song, "Model-contrastive federated learning", 2021.
    """
    return replace(fedavg(), name="moon", objective=Moon(strength, temperature))


def continuous(*, strength: float = 1.0) -> Recipe:
    """Continuous: the last model of the session before teaches the clients of this one.

    A baseline of Chang et al., "Federated learning with dynamic client arrival and departure", 2025.
    """
    return replace(fedavg(), name="continuous", objective=Continuous(strength))


# --- learning only from what has just arrived ---


def fedogd() -> Recipe:
    """FedOGD: online gradient descent on every client, only on what has just arrived.

    Kwon, Park, Hong, "Tighter regret analysis and optimization of online federated learning", 2023.
    """
    return Recipe(name="fedogd", memory=Replace())


def fedomd(*, p: float = 1.99) -> Recipe:
    """FedOMD: FedOGD in another geometry, that of a p-norm.

    Mitra, Hassani, Pappas, "Online federated learning", 2021.
    """
    return replace(fedogd(), name="fedomd", geometry=PNorm(p))


def adaptive_fedavg() -> Recipe:
    """Adaptive-FedAvg: the server sets the clients' learning rate by how much the model moves.

    Canonaco et al., "Adaptive federated learning in presence of concept drift", 2021.
    """
    return replace(fedogd(), name="adaptive-fedavg", server=Adaptive())


def feddrift() -> Recipe:
    """FedDrift: a bank of models; who drifts gets a new one, and models that agree are merged.

    Jothimurugesan et al., "Federated learning under distributed concept drift", 2023.
    """
    return replace(fedogd(), name="feddrift", bank=FedDrift())


def flash() -> Recipe:
    """Flash: an adaptive server step that speeds up when the updates change.

    Panchal et al., "Flash: Concept drift adaptation in federated learning", 2023.
    """
    return replace(fedogd(), name="flash", server=Flash())


def fedewc(*, strength: float = 0.1) -> Recipe:
    """FedEWC: clients spare the parameters that mattered in their previous latent state.

    Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", 2017, at the clients.
    """
    return replace(fedogd(), name="fedewc", objective=Elastic(strength))


def flwf_2t() -> Recipe:
    """FLwF-2T: clients learn from two teachers, their own past and the global model.

    Usmanova et al., "A distillation-based approach integrating continual learning and federated
    learning for pervasive services", 2021.
    """
    return replace(fedogd(), name="flwf-2t", objective=TwoTeachers())


# --- concepts that change: a bank of models ---


def fedavg_retrain(*, participation: float = 0.5) -> Recipe:
    """FedAvg with retraining: one model, which goes on learning from the newest data.

    A baseline of Peng, Tang, "FedDAA: Dynamic client clustering for concept drift adaptation in federated
    learning", 2025.
    """
    return Recipe(
        name="fedavg-retrain",
        memory=Replace(),
        selection=Uniform(participation),
        weights=BySamples(),
    )


def feddrift_eager() -> Recipe:
    """FedDrift-Eager: all clients that drift at the same time get one new model, and nothing is merged.

    Jothimurugesan et al., "Federated learning under distributed concept drift", 2023.
    """
    return replace(feddrift(), name="feddrift-eager", bank=FedDrift(eager=True))


def fedrc(*, num_models: int = 2, participation: float = 0.5) -> Recipe:
    """FedRC: clients train several models, each on the samples that it explains beyond their labels.

    Guo, Tang, Lin, "FedRC: Tackling diverse distribution shifts challenge in federated learning by robust
    clustering", 2024.
    """
    return Recipe(
        name="fedrc",
        memory=Replace(),
        selection=Uniform(participation),
        weights=ByWeight(),
        bank=FedRc(num_models),
    )


def feddaa(*, participation: float = 0.5, aggregate_by_responsibility: bool = False) -> Recipe:
    """FedDAA: FedRC in time steps, with as many models as there are concepts; only who has drifted forgets.

    Peng, Tang, "FedDAA: Dynamic client clustering for concept drift adaptation in federated learning", 2025.
    """
    return Recipe(
        name="feddaa",
        memory=Fifo(),
        selection=Uniform(participation),
        weights=ByWeight(basis="explained" if aggregate_by_responsibility else "learnt"),
        bank=FedDaa(),
    )


def oracle(*, participation: float = 0.5) -> Recipe:
    """Oracle: one model for each true concept, and who has drifted is known.

    The bound from above of Peng, Tang, "FedDAA: Dynamic client clustering for concept drift adaptation in
    federated learning", 2025.
    """
    return Recipe(
        name="oracle",
        memory=Fifo(),
        selection=Uniform(participation),
        weights=ByWeight(),
        bank=Oracle(),
    )


# --- choosing what to keep ---


def importance_sampling(*, budget: float = 0.5) -> Recipe:
    """IS: clients keep the samples with the largest gradients.

    Li et al., "Sample-level data selection for federated learning", 2021, in spirit.
    """
    return Recipe(name="is", memory=Importance(budget))


def ode(*, budget: float = 0.5) -> Recipe:
    """ODE: clients keep the samples whose gradient agrees with the whole federation's.

    Gong et al., "ODE: A data selection framework for online federated learning", 2023.
    """
    return Recipe(name="ode", memory=Ode(budget))


def drsr() -> Recipe:
    """DRSR: the memory follows the long run of the stream, by a falling share of new samples.

    Wang, Bian, Xu, "Local data caching for federated learning with streaming data", 2024. For the other
    reading, which matches class histograms: ``memory.mode=match``.
    """
    return Recipe(name="drsr", memory=Drsr())


def srsr(*, ratio: float = 0.2) -> Recipe:
    """SRSR: a fixed share of the memory is replaced at every tick.

    Wang, Bian, Xu, "Local data caching for federated learning with streaming data", 2024.
    """
    return Recipe(name="srsr", memory=UniformRatio(budget=ratio))


# --- stored data against data that streams in ---


def stream_ours(*, ratio: float | None = None) -> Recipe:
    """The data-streams method: what stored and what streaming data count minimises a bound.

    Marfoq, Neglia, Kameni, Vidal, "Federated learning for data streams", 2023.
    """
    return Recipe(
        name="stream-ours", memory=Fifo(), sample_weights=OldAndNew(ratio=ratio), weights=ByWeight()
    )


def stream_uniform() -> Recipe:
    """Every sample of the whole run counts the same, however short its stay.

    A baseline of Marfoq et al., "Federated learning for data streams", 2023.
    """
    return replace(stream_ours(), name="stream-uniform", sample_weights=OldAndNew("uniform"))


def stream_historical() -> Recipe:
    """Only clients with stored data train.

    A baseline of Marfoq et al., "Federated learning for data streams", 2023.
    """
    return replace(stream_ours(), name="stream-historical", sample_weights=OldAndNew("historical"))


def stream_fresh() -> Recipe:
    """Only clients whose data stream in train.

    A baseline of Marfoq et al., "Federated learning for data streams", 2023.
    """
    return replace(stream_ours(), name="stream-fresh", sample_weights=OldAndNew("fresh"))


# --- choosing who takes part ---


def dpcs(*, participation: float = 0.3) -> Recipe:
    """DPCS: clients are drawn so that their labels together are balanced.

    Song, Huang, Wu, Lu, "A data-aware probabilistic client sampling scheme in streaming federated
    learning".
    """
    return Recipe(name="dpcs", memory=Fifo(), selection=Dpcs(participation))


def powd(*, participation: float = 0.3) -> Recipe:
    """Power-of-choice: of some random candidates, those on whose data the model does worst.

    Cho, Wang, Joshi, "Towards understanding biased client selection in federated learning", 2022.
    """
    return Recipe(name="powd", memory=Fifo(), selection=PowerOfChoice(participation))


# --- beginning a session of other clients ---


def warmstart(*, scale: float = 10.0) -> Recipe:
    """Warm start: a session begins with a mean of past sessions' models, by how alike their clients are.

    Chang et al., "Federated learning with dynamic client arrival and departure: Convergence and
    rapid adaptation via initial model construction", 2025.
    """
    return replace(fedavg(), name="warmstart", session_start=WarmStart(scale=scale))


def average_start() -> Recipe:
    """Average: a session begins with the plain mean of past sessions' models.

    A baseline of Chang et al., "Federated learning with dynamic client arrival and departure: Convergence and
    rapid adaptation via initial model construction", 2025.
    """
    return replace(fedavg(), name="average-start", session_start=Average())
