from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import plain, stored
from contracts.examples import some_outlook
from contracts.looks import FakeLook
from thalweg.aggregation import Age, ByWeight, ShiftAware
from thalweg.core.errors import ConfigError
from thalweg.core.trees import like, read_tree, write_tree
from thalweg.core.types import Arrival, Floats, Holding, Intake, Ints, Outlook, Supply
from thalweg.emphasis import InverseStay
from thalweg.forecast import Bayesian, Growing
from thalweg.local import Settles, Sgd
from thalweg.memory import Dds, Fifo, Importance, Ode, Replace, Reservoir, UniformRatio
from thalweg.recipes import RECIPES, Recipe, fedavg, sfedpo
from thalweg.recipes.client import ClientRound, Clients, ClientState
from thalweg.selection import Available
from thalweg.streams import LatentStates, Replay, Setting, StateBook, World

LABELS = np.arange(300_000) % 7


@dataclass(frozen=True, eq=False)
class Script:
    """A world in which every row arrives once and its number tells where and when.

    Row = 100,000 * client + 10,000 * life + 1,000 * tick + number; life 0 is the beginning, and
    tick t of every round is in state t.
    """

    ticks: int = 3
    start: int = 4
    per_tick: int = 4
    collects_when_absent: bool = False
    num_clients: int = 3
    holds: int = 4

    @property
    def book(self) -> StateBook:
        return StateBook(np.full((3, 3), 1 / 3), np.full(3, 1 / 3))

    @property
    def availability(self) -> Floats:
        return np.full(self.num_clients, 0.5)

    @property
    def mixes(self) -> Floats:
        return np.full((self.num_clients, 3), 1 / 3)

    @property
    def clients_are_groups(self) -> bool:
        return False

    def capacity(self, client: int) -> int:
        return self.holds

    def supply(self, client: int) -> Supply:
        return Supply(self.start + 10 * self.ticks * self.per_tick, False, 5.0)

    def here(self, rnd: int) -> Ints:
        return np.arange(self.num_clients)

    def truth(self, client: int) -> Floats:
        return some_outlook().probs

    def begin(self, client: int) -> tuple[int, Arrival]:
        return 0, Arrival(100_000 * client + np.arange(self.start), 0)

    def emit(self, state: int, client: int, lived: int) -> tuple[int, list[Arrival]]:
        assert state == lived, "the stream goes on where it was"
        first = 100_000 * client + 10_000 * (lived + 1)
        return state + 1, [
            Arrival(first + 1_000 * tick + np.arange(self.per_tick), tick)
            for tick in range(self.ticks)
        ]


@dataclass(frozen=True)
class Expects:
    """A forecast that always says the same."""

    def init(self, truth: Floats, rng: np.random.Generator) -> None:
        return None

    def outlook(self, state: None, histograms: Floats, importance: Floats) -> Outlook:
        return some_outlook()

    def observe(self, state: None, states_seen: Ints) -> None:
        return None


@dataclass(frozen=True)
class Diary:
    """A memory policy without foresight that keeps the newest and notes what it was shown."""

    shown: list[Intake] = field(default_factory=list)

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(self, state: None, intake: Intake, rng: np.random.Generator) -> tuple[None, Ints]:
        self.shown.append(intake)
        return Fifo().keep(state, intake, rng)


@dataclass(frozen=True)
class ForesightedDiary(Diary):
    asked: list[Intake] = field(default_factory=list)

    def renewal(self, state: None, intake: Intake) -> Floats:
        self.asked.append(intake)
        return np.full(3, 0.125)


@dataclass(frozen=True)
class ReportsAge:
    """Weights that report what they are told of a memory."""

    def report(self, age: Age) -> dict[str, float]:
        renewal = {f"renewal {m}": float(share) for m, share in enumerate(age.renewal)}
        return {"expected": float(age.outlook.probs[0]), "ticks": age.ticks, **renewal}

    def weigh(self, updates: Any, roster: Any) -> Floats:
        return np.full(len(updates), 1 / len(updates))


def clients(
    recipe: Recipe, world: World | None = None, *, capacity: int = 4, seed: int = 0
) -> Clients:
    sgd = Sgd(lr=0.1, batch_size=3, steps=2)
    world = Script() if world is None else world
    if isinstance(world, Script):
        world = replace(world, holds=capacity)
    return Clients(recipe, world, LABELS, sgd, seed)


def recipe(memory: Any, **parts: Any) -> Recipe:
    return Recipe("mine", memory, **parts)


def live(visit: ClientRound, ticks: int = 3) -> list[list[int]]:
    """Walk through a round; the rows of all mini-batches."""
    batches = []
    for _ in range(ticks):
        visit.observe()
        batches += [batch.rows.tolist() for batch in visit.batches()]
    return batches


def played(who: Clients, client: int, rounds: list[int]) -> ClientState:
    """A client that takes part in these rounds."""
    state = who.newborn(client)
    for rnd in rounds:
        visit = who.enter(client, state, rnd, FakeLook([], []))
        live(visit, who.world.ticks)
        state = visit.leave()
    return state


def test_a_client_is_born_with_what_its_world_gives_and_fits() -> None:
    newborn = clients(recipe(Reservoir()), Script(start=9), capacity=4).newborn(2)
    assert newborn.rows.tolist() == [200_000, 200_001, 200_002, 200_003]
    assert newborn.rows.dtype == np.int32
    assert newborn.lived == 0
    assert newborn.memory == Reservoir().init(4, 4)


def test_the_memory_is_asked_once_per_tick_with_what_has_just_arrived() -> None:
    diary = Diary()
    who = clients(recipe(diary))
    live(who.enter(1, who.newborn(1), 0))
    assert [intake.state for intake in diary.shown] == [0, 1, 2]
    assert [(intake.held, intake.num_new, intake.capacity) for intake in diary.shown] == [
        (4, 4, 4)
    ] * 3
    first = diary.shown[0]
    assert first.held_labels.tolist() == LABELS[100_000:100_004].tolist()
    assert first.new_labels.tolist() == LABELS[110_000:110_004].tolist()
    assert diary.shown[1].held_labels.tolist() == LABELS[110_000:110_004].tolist()


def test_batches_are_drawn_after_the_memory_was_renewed() -> None:
    who = clients(recipe(Replace()))
    visit = who.enter(0, who.newborn(0), 0)
    for tick in range(3):
        visit.observe()
        just_arrived = set(range(10_000 + 1_000 * tick, 10_004 + 1_000 * tick))
        batches = visit.batches()
        assert len(batches) == 2
        for rows, weights in batches:
            assert len(rows) == 3
            assert weights is None
            assert set(rows.tolist()) <= just_arrived


def test_a_memory_of_five_hundred_renews_268_276_and_167() -> None:
    world = Script(start=500, per_tick=500)
    who = clients(recipe(Dds(), forecast=Expects()), world, capacity=500)
    visit = who.enter(0, who.newborn(0), 0)
    renewed = []
    for arrival in visit.arrivals:
        before = visit.rows
        visit.observe()
        assert len(visit.rows) == 500
        renewed.append(np.count_nonzero(visit.rows != before))
        assert np.isin(arrival.items, visit.rows).sum() == renewed[-1]
    assert renewed == [268, 276, 167]


def test_a_client_that_is_away_stands_still() -> None:
    # Its memory and its stream after two rounds are the same, whichever rounds they were.
    who = clients(recipe(UniformRatio(), forecast=Bayesian()))
    close, apart = played(who, 1, [0, 1]), played(who, 1, [3, 90])
    assert plain(close) == plain(apart)
    assert close.lived == 2
    assert close.forecast.visits.tolist() == [2, 2, 2]


def test_the_visit_of_one_client_changes_nothing_for_another() -> None:
    who = clients(recipe(UniformRatio()))
    waiting = who.newborn(1)
    before = plain(waiting)
    alone = played(who, 0, [0, 1])
    assert plain(waiting) == before
    played(who, 1, [0])
    assert plain(played(who, 0, [0, 1])) == plain(alone)


def test_a_client_that_collects_while_away_has_missed_nothing_but_the_training() -> None:
    who = clients(recipe(UniformRatio(), forecast=Bayesian()), Script(collects_when_absent=True))
    always, once = played(who, 1, [0, 1, 2, 3]), played(who, 1, [3])
    assert plain(always) == plain(once)
    assert once.lived == 4
    assert once.forecast.visits.tolist() == [4, 4, 4]


def test_a_visit_does_not_change_the_state_it_began_with() -> None:
    who = clients(recipe(UniformRatio(), forecast=Bayesian()))
    state = who.newborn(0)
    before = plain(state)
    live(who.enter(0, state, 0))
    assert plain(state) == before
    again = who.enter(0, state, 0)
    assert live(again) == live(who.enter(0, state, 0)), "so it can be repeated"


def test_batches_belong_to_the_round_and_memories_to_the_life() -> None:
    who = clients(recipe(UniformRatio()), capacity=50)
    state = who.newborn(0)
    early, late = who.enter(0, state, 0), who.enter(0, state, 7)
    assert live(early) != live(late)
    assert early.rows.tolist() == late.rows.tolist()


def test_another_seed_is_another_life() -> None:
    one, other = (
        clients(recipe(UniformRatio()), Script(per_tick=40, start=40), capacity=40, seed=s)
        for s in (0, 1)
    )
    assert played(one, 0, [0]).rows.tolist() != played(other, 0, [0]).rows.tolist()


def test_the_forecast_learns_of_a_round_only_when_it_is_over() -> None:
    who = clients(
        recipe(UniformRatio(), forecast=Bayesian(), weights=ReportsAge()), Script(ticks=1)
    )
    visit = who.enter(0, who.newborn(0), 0)
    assert visit.reports()["expected"] == pytest.approx(1 / 3)
    live(visit, ticks=1)
    assert visit.outlook.probs == pytest.approx([1 / 3] * 3)
    assert visit.reports()["expected"] == pytest.approx(1 / 3), "no leak of this round's states"
    following = who.enter(0, visit.leave(), 1)
    assert following.outlook.probs == pytest.approx([2 / 4, 1 / 4, 1 / 4])
    assert following.reports()["expected"] == pytest.approx(2 / 4)


def test_the_score_is_that_of_the_expected_states_and_ratios() -> None:
    who = clients(recipe(Dds(), forecast=Expects(), weights=ShiftAware()), Script(ticks=5))
    visit = who.enter(0, who.newborn(0), 0)
    before = dict(visit.reports())
    assert before["shift_score"] == pytest.approx(0.764378, abs=1e-6)
    visit.observe()
    assert dict(visit.reports()) == before, "what happens in the round does not matter"


def test_weights_that_ask_for_nothing_get_nothing() -> None:
    who = clients(fedavg())
    visit = who.enter(0, who.newborn(0), 0)
    live(visit)
    assert dict(visit.reports()) == {}


def test_a_policy_with_foresight_is_asked_about_the_beginning_of_the_round() -> None:
    diary = ForesightedDiary()
    who = clients(recipe(diary, weights=ReportsAge()))
    visit = who.enter(0, who.newborn(0), 0)
    live(visit)
    report = visit.reports()
    assert [report[f"renewal {m}"] for m in range(3)] == [0.125] * 3
    assert report["ticks"] == 3
    (asked,) = diary.asked
    assert plain(asked) == plain(diary.shown[0])


def test_foresight_knows_what_the_policy_remembered_when_the_round_began() -> None:
    who = clients(recipe(Reservoir(), weights=ReportsAge()))
    visit = who.enter(0, who.newborn(0), 0)
    live(visit)
    assert visit.reports()["renewal 0"] == 4 / 8
    following = who.enter(0, visit.leave(), 1)
    live(following)
    assert following.reports()["renewal 0"] == 4 / 20  # 4 at birth, 3 * 4 in the first round


def test_the_renewal_of_a_policy_without_foresight_is_measured() -> None:
    # Two of the four samples held are new after each tick.
    who = clients(recipe(Diary(), weights=ReportsAge()), Script(per_tick=2))
    visit = who.enter(0, who.newborn(0), 0)
    live(visit)
    report = visit.reports()
    assert [report[f"renewal {m}"] for m in range(3)] == [0.5] * 3


def test_a_client_with_an_empty_memory_has_nothing_to_learn_from() -> None:
    world = Replay(num_clients=2, arrivals=3, at_end="silence").build(
        Setting(np.zeros(8, dtype=np.int64), 1, ticks=3, capacity=4, rounds=9, seed=0)
    )
    who = clients(recipe(Replace()), world)
    assert who.newborn(0).rows.tolist() == []
    visit = who.enter(0, who.newborn(0), 0)
    assert [batch.rows.tolist() for batch in visit.batches()] == [], "before anything arrived"
    live(visit)
    assert visit.rows.tolist() == [3], "the last row, which nothing has replaced"


def test_a_memory_fills_up_as_rows_arrive() -> None:
    world = Replay(num_clients=2, arrivals=3).build(
        Setting(np.zeros(40, dtype=np.int64), 1, ticks=1, capacity=8, rounds=9, seed=0)
    )
    who = clients(recipe(UniformRatio()), world)
    held = [len(played(who, 0, list(range(rounds))).rows) for rounds in range(5)]
    assert held == [0, 3, 6, 8, 8]


def test_all_that_a_client_remembers_survives_a_checkpoint(tmp_path: Path) -> None:
    who = clients(recipe(Reservoir(), forecast=Bayesian()))
    state = played(who, 1, [0, 1])
    assert plain(stored(state, fresh=who.newborn(1))) == plain(state)
    write_tree(tmp_path / "clients", {"1": state})
    restored = like(who.newborn(1), read_tree(tmp_path / "clients")["1"])
    here, there = who.enter(1, state, 2), who.enter(1, restored, 2)
    assert live(here) == live(there)
    assert plain(here.leave()) == plain(there.leave())


def test_the_world_is_the_same_for_every_recipe() -> None:
    world = LatentStates(num_clients=4).build(
        Setting(LABELS[:3000], 7, ticks=3, capacity=20, rounds=9, seed=5)
    )
    lives = []
    for make in RECIPES.values():
        who = clients(make(), world, seed=5)
        state = who.newborn(2)
        visit = who.enter(2, state, 0, FakeLook([], []))
        live(visit)
        later = who.enter(2, visit.leave(), 4, FakeLook([], []))
        lives.append(plain([state.rows, visit.arrivals, later.arrivals]))
    assert len(lives) > 2
    assert all(life == lives[0] for life in lives)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (
            [0, 1, 2, 3, 4],
            r"at most 4 different positions in \[0, 8\), got 5 from 0 to 4, 5 of them",
        ),
        ([0, 8], "got 2 from 0 to 8"),
        ([-1, 2], "got 2 from -1 to 2"),
        ([1, 1, 2], "got 3 from 1 to 2, 2 of them different"),
    ],
)
def test_a_policy_that_keeps_what_it_cannot_is_named(kept: list[int], message: str) -> None:
    @dataclass(frozen=True)
    class Careless(Diary):
        def keep(self, state: None, intake: Intake, rng: np.random.Generator) -> tuple[None, Ints]:
            return None, np.array(kept)

    who = clients(recipe(Careless()))
    with pytest.raises(ConfigError, match=rf"Careless\.keep must return .*{message}"):
        who.enter(0, who.newborn(0), 0).observe()


def test_a_policy_may_keep_nothing() -> None:
    @dataclass(frozen=True)
    class Forgets(Diary):
        def keep(self, state: None, intake: Intake, rng: np.random.Generator) -> tuple[None, Ints]:
            return None, np.empty(0, dtype=np.int64)

    who = clients(recipe(Forgets()))
    visit = who.enter(0, who.newborn(0), 0)
    assert live(visit) == []
    assert visit.leave().rows.tolist() == []


def test_every_published_recipe_can_be_lived() -> None:
    for make in RECIPES.values():
        who = clients(make())
        state = played(who, 0, [0, 1])
        assert (state.lived, len(state.rows)) == (2, 4)
    assert "shift_score" in clients(sfedpo()).enter(0, clients(sfedpo()).newborn(0), 0).reports()


@dataclass(frozen=True)
class Turns:
    """An objective that notes every turn: how many rows were held, and whether the state changed."""

    def loss(self, model: Any, params: Any, batch: Any, memo: Any) -> Any:
        raise NotImplementedError

    def init(self, num_params: int) -> list[Any]:
        return []

    def turn(self, state: list[Any], look: Any, rows: Ints, changed: bool) -> list[Any]:
        return [*state, [len(rows), changed]]

    def memo(self, state: list[Any], start: Any) -> dict[str, Any]:
        return {"turns": np.array([len(state)], dtype=np.float32)}


def test_an_objective_is_told_when_the_latent_state_changes_but_never_at_the_first_tick() -> None:
    who = clients(recipe(Replace(), objective=Turns()))
    state = played(who, 0, [0, 3])
    changes = [changed for _, changed in state.objective]
    assert changes == [False, True, True, True, True, True]  # ticks are in states 0, 1, 2, 0, 1, 2
    assert state.latent == 2


def test_a_turn_sees_what_was_held_before_the_samples_arrived() -> None:
    who = clients(recipe(Replace(), objective=Turns()), Script(start=1))
    state = played(who, 0, [0])
    assert [held for held, _ in state.objective] == [1, 4, 4]


def test_while_a_client_is_away_its_objective_sleeps() -> None:
    who = clients(recipe(Replace(), objective=Turns()), Script(collects_when_absent=True))
    assert len(played(who, 0, [0, 5]).objective) == 6


def test_the_memo_holds_what_the_objective_remembers_and_what_it_was_told() -> None:
    who = clients(recipe(Replace(), objective=Turns()))
    told = {"objective": {"word": np.array([7.0], dtype=np.float32)}}
    visit = who.enter(0, who.newborn(0), 0, FakeLook([], []), told)
    visit.observe()
    memo = visit.memo(np.zeros(2, dtype=np.float32))
    assert {name: value.tolist() for name, value in memo.items()} == {"word": [7.0], "turns": [1.0]}


def test_early_stopping_holds_out_a_tenth_and_ends_when_a_tick_gains_too_little() -> None:
    who = clients(recipe(Replace(), stopping=Settles(gain=0.3)), Script(per_tick=20), capacity=20)
    look = FakeLook([], loss=1.0)
    visit = who.enter(0, who.newborn(0), 0, look)
    visit.observe()
    batches = visit.batches()
    assert not {row for batch in batches for row in batch.rows.tolist()} & set(
        visit.rows[::10].tolist()
    )
    look.loss = 0.6  # by 0.4, and 0.3 / 1 is asked for
    visit.pause()
    visit.observe()
    assert visit.batches()
    look.loss = 0.5  # by 0.1, and 0.3 / 2 is asked for
    visit.pause()
    visit.observe()
    assert visit.batches() == []


class HoldsOutWhatIsNotThere(Settles):
    def held_out(self, num_rows: int) -> Ints:
        return np.array([num_rows])


def test_a_stopping_that_holds_out_what_is_not_there_is_told_so() -> None:
    who = clients(recipe(Replace(), stopping=HoldsOutWhatIsNotThere()))
    visit = who.enter(0, who.newborn(0), 0, FakeLook([], loss=1.0))
    visit.observe()
    with pytest.raises(
        ConfigError, match=r"held_out must return .* in \[0, 4\), ascending, got \[4\]"
    ):
        visit.batches()


def test_only_recipes_that_look_at_their_model_are_attentive() -> None:
    attentive = {name for name, make in RECIPES.items() if clients(make()).is_attentive}
    assert attentive == {"fedcurv", "fedewc", "flwf-2t", "is", "ode"}


@dataclass(frozen=True, eq=False)
class ThreeClasses(Script):
    """The same, but begins with class 0, and tick t of every round brings class 2 - t alone."""

    @property
    def labels(self) -> Ints:
        rows = np.arange(300_000)
        return np.where(rows % 100_000 < 10_000, 0, 2 - rows % 10_000 // 1_000)


def growing_clients(memory: Any, oracle: Any, **parts: Any) -> Clients:
    world = ThreeClasses(**parts)
    who = recipe(memory, forecast=oracle, weights=ShiftAware(mismatch="kme"))
    return Clients(who, world, world.labels, Sgd(lr=0.1, batch_size=3, steps=2), seed=0)


def test_an_oracle_with_states_of_its_own_names_them_to_the_memory() -> None:
    diary = Diary()
    who = growing_clients(diary, Growing(), ticks=2)
    newborn = who.newborn(0)
    assert newborn.forecast.signatures.tolist() == [[1, 0, 0]], "what it starts with"
    assert newborn.forecast.visits.tolist() == [0]
    visit = who.enter(0, newborn, 0)
    live(visit, ticks=2)
    assert [intake.state for intake in diary.shown] == [1, 2]
    # Opened in mid-round: the memory sees as many states as it needs, the weights those of before.
    assert [len(intake.outlook.probs) for intake in diary.shown] == [2, 3]
    assert len(visit.outlook.probs) == 1
    assert visit.leave().forecast.visits.tolist() == [0, 1, 1]
    following = who.enter(0, visit.leave(), 1)
    assert following.outlook.probs.tolist() == pytest.approx([1 / 5, 2 / 5, 2 / 5])


def test_a_state_opened_in_the_round_changes_no_report_of_this_round() -> None:
    for memory in (Dds(), Diary()):  # with and without foresight
        who = growing_clients(memory, Growing())
        visit = who.enter(0, who.newborn(0), 0)
        visit.observe()
        before = dict(visit.reports())
        live(visit, 2)
        assert visit.reports() == before
        following = who.enter(0, visit.leave(), 1)
        live(following)
        assert following.reports() != before, "but that of the next"


def test_dds_has_a_ratio_for_a_state_that_was_opened_just_now() -> None:
    who = growing_clients(Dds(budget=0.5), Growing())
    visit = who.enter(0, who.newborn(0), 0)
    live(visit)
    assert len(visit.rows) == 4
    assert np.unique(who.labels[visit.rows]).size > 1


def test_a_client_with_states_of_its_own_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    who = growing_clients(Dds(), Growing())
    state = played(who, 1, [0, 1])
    restored = stored(state, fresh=who.newborn(1))
    assert len(restored.forecast.visits) == 3
    assert len(who.newborn(1).forecast.visits) == 1
    assert plain(restored) == plain(state)
    assert live(who.enter(1, restored, 2)) == live(who.enter(1, state, 2))


def test_states_are_found_while_away_as_well() -> None:
    who = growing_clients(Dds(), Growing(), collects_when_absent=True)
    assert plain(played(who, 1, [0, 1, 2])) == plain(played(who, 1, [2]))


def test_the_weights_are_told_what_the_states_of_the_world_are_like() -> None:
    told: list[Age] = []

    @dataclass(frozen=True)
    class Listens(ReportsAge):
        def report(self, age: Age) -> dict[str, float]:
            told.append(age)
            return {}

    who = clients(recipe(Fifo(), weights=Listens()))
    who.enter(0, who.newborn(0), 0).reports()
    assert told[0].embeddings is not None
    assert told[0].embeddings.tolist() == Script().book.histograms.tolist()


class NotingLook(FakeLook):
    """Notes how many samples it was asked to look at."""

    def glance(self, rows: Ints, received: bool) -> Any:
        self.asked.append([len(rows), int(received)])
        return super().glance(rows, received)


@pytest.mark.parametrize(
    ("memory", "asked"),
    [(Ode(), [[8, 1], [4, 1], [4, 1]]), (Importance(), [[8, 0], [8, 0], [8, 0]])],
)
def test_samples_are_looked_at_once_if_the_model_stays_the_same(
    memory: Any, asked: list[list[int]]
) -> None:
    who, look = clients(recipe(memory)), NotingLook([])
    live(who.enter(0, who.newborn(0), 0, look))
    assert look.asked == asked


def test_without_an_emphasis_nobody_notes_when_samples_came() -> None:
    who = clients(recipe(Fifo()))
    assert played(who, 0, [0, 1]).since is None


def test_stays_are_counted_in_rounds_from_the_one_in_which_a_sample_came() -> None:
    seen = Emphatic()
    who = clients(recipe(Fifo(), emphasis=seen), Script(ticks=1, per_tick=2), capacity=4)
    state = who.newborn(0)
    for rnd in (0, 3):
        visit = who.enter(0, state, rnd)
        live(visit, 1)
        state = visit.leave()
    # Born with four; two came in round 0, two in round 3.
    assert [holding.stays.tolist() for holding in seen.shown] == [[1, 1, 1, 1], [4, 4, 1, 1]]
    assert state.since is not None
    assert state.since.tolist() == [0, 0, 3, 3]


def test_what_came_while_away_has_stayed_since_then() -> None:
    seen = Emphatic()
    world = Script(ticks=1, per_tick=2, collects_when_absent=True)
    who = clients(recipe(Fifo(), emphasis=seen), world, capacity=4)
    live(who.enter(0, who.newborn(0), 2), 1)
    assert seen.shown[-1].stays.tolist() == [2, 2, 1, 1]


@dataclass(frozen=True)
class Emphatic:
    """Sample number j counts j + 1, times what was assigned; notes what it was shown."""

    shown: list[Holding] = field(default_factory=list)

    def weigh(self, holding: Holding) -> Floats:
        self.shown.append(holding)
        return holding.assigned * (1.0 + np.arange(len(holding.stays)))


def test_the_weights_of_a_mini_batch_are_unbiased() -> None:
    """Over all mini-batches of a pass, each sample has the weight that it has in the memory."""
    who = clients(recipe(Replace(), emphasis=Emphatic()), Script(ticks=1, per_tick=4))
    totals = np.zeros(4)
    for seed in range(1000):
        visit = replace(who, seed=seed).enter(0, who.newborn(0), 0)
        visit.observe()
        for rows, weights in visit.batches():
            assert weights is not None
            np.add.at(totals, rows - visit.rows.min(), weights)
    np.testing.assert_allclose(totals / 2000, [0.1, 0.2, 0.3, 0.4], atol=0.02)


def test_a_batch_of_the_whole_memory_has_the_samples_own_weights() -> None:
    who = clients(recipe(Replace(), emphasis=Emphatic()), Script(ticks=1, per_tick=3), capacity=3)
    visit = who.enter(0, who.newborn(0), 0)
    visit.observe()
    weights = visit.batches()[0].weights
    assert weights is not None
    np.testing.assert_allclose(weights, [1 / 6, 2 / 6, 3 / 6], rtol=1e-6)


def test_a_client_whose_samples_count_nothing_does_not_train() -> None:
    who = clients(recipe(Replace(), emphasis=Emphatic(), weights=ByWeight()))
    visit = who.enter(0, who.newborn(0), 0, heard={"emphasis": {"assigned": np.zeros(1, "f4")}})
    assert live(visit) == []
    assert visit.reports() == {"total_weight": 0.0}


def test_the_total_weight_is_reported() -> None:
    who = clients(recipe(Replace(), emphasis=Emphatic(), weights=ByWeight()))
    visit = who.enter(0, who.newborn(0), 0, heard={"emphasis": {"assigned": np.full(1, 2, "f4")}})
    live(visit)
    assert visit.reports() == {"total_weight": 2 * (1 + 2 + 3 + 4)}
    plain_ones = clients(recipe(Replace(), weights=ByWeight()))
    visit = plain_ones.enter(0, plain_ones.newborn(0), 0)
    live(visit)
    assert visit.reports() == {"total_weight": 4.0}, "all count one"


@dataclass(frozen=True)
class Broken:
    weights: tuple[float, ...]

    def weigh(self, holding: Holding) -> Floats:
        return np.array(self.weights)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 1.0, 1.0, -1.0), (1.0, 1.0, 1.0, np.nan)])
def test_an_emphasis_that_is_wrong_is_told_so(weights: tuple[float, ...]) -> None:
    who = clients(recipe(Replace(), emphasis=Broken(weights)))
    visit = who.enter(0, who.newborn(0), 0)
    visit.observe()
    with pytest.raises(ConfigError, match=r"Broken\.weigh must return 4 finite weights"):
        visit.batches()


def test_when_samples_came_survives_a_checkpoint() -> None:
    who = clients(recipe(Fifo(), emphasis=InverseStay()))
    state = played(who, 0, [0, 2])
    restored = stored(state, fresh=who.newborn(0))
    assert plain(restored) == plain(state)


@dataclass(frozen=True)
class Counting(Available):
    def begin_tally(self, num_classes: int) -> Ints:
        return np.zeros(num_classes, dtype=np.int64)

    def count(self, tally: Ints, labels: Ints) -> Ints:
        return tally + np.bincount(labels % len(tally), minlength=len(tally))


def test_a_selection_that_tallies_sees_every_label_that_arrives() -> None:
    who = clients(recipe(Fifo(), selection=Counting()))
    assert who.newborn(0).tally.sum() == 4, "what it starts with counts too"
    state = played(who, 0, [0, 1])
    assert state.tally.sum() == 4 + 2 * 3 * 4
    assert plain(stored(state, fresh=who.newborn(0))) == plain(state)
