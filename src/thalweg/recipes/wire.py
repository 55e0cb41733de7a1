"""Messages as bytes. Whatever arrives is checked before anybody uses it.

The form is that of checkpoints (`core.trees`): plain values and arrays, no code, nothing pickled. Both sides
hold the same `Terms`, and a message that does not keep to them is refused, where it is sent and where it
arrives, with a `BadMessage` that says what was expected and what came. A message is not secret and not signed:
who may send it, and to whom, is the network's business.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from thalweg.aggregation import Divides, Reports
from thalweg.core.errors import BadMessage, Diverged, ShapeMismatch
from thalweg.core.talk import Asks
from thalweg.core.trees import tree_from_bytes, tree_to_bytes
from thalweg.core.types import Floats32, Ints, Supply
from thalweg.emphasis import Assigns
from thalweg.recipes.base import Recipe
from thalweg.recipes.federation import AskingStage
from thalweg.recipes.fields import Fields
from thalweg.recipes.messages import (
    Answer,
    Call,
    Circle,
    Errand,
    Hello,
    MaskStep,
    Message,
    News,
    Order,
    Question,
    Reply,
    Token,
)
from thalweg.recipes.talks import saying, talking
from thalweg.theory.masked_sums import KEY_BYTES, LETTER_BYTES, SHARE_BYTES

FORMAT = 3  # a message of another number is of another version of this file
LONGEST_OUTLINE = 1 << 20  # bytes for all that is not an array
NOBODY_MASKS = "nobody masks updates in this recipe."
CALLED = {  # what comes with a call, a row per member
    "keys": {},
    "shares": {"post_keys": KEY_BYTES},
    "open": {"post_keys": KEY_BYTES, "letters": LETTER_BYTES, "fates": 1},
}
GIVEN = {  # what is given; keys in one row, the rest in a row per member
    "keys": {"mask_keys": KEY_BYTES, "post_keys": KEY_BYTES, "promises": KEY_BYTES},
    "shares": {"letters": LETTER_BYTES},
    "open": {"shares": SHARE_BYTES},
}

T = TypeVar("T", bound=Message)


@dataclass(frozen=True)
class Terms:
    """What both sides know beforehand."""

    recipe: Recipe
    num_params: int  # P
    most_models: int = 32
    """No message weighs more than so many models, and a megabyte."""

    @property
    def most_bytes(self) -> int:
        return self.most_models * self.num_params * 4 + LONGEST_OUTLINE

    @cached_property
    def told_stages(self) -> set[str]:
        """Whose half at the server may tell clients something."""
        emphasis: object = self.recipe.emphasis
        assigning = {"emphasis"} if isinstance(emphasis, Assigns) else set()
        bank: object = self.recipe.bank
        dividing = {"bank"} if isinstance(bank, Divides) else set()
        effect = self.recipe.effect
        acting = {"alarm"} if effect.keep < 1 or effect.opens_state else set()
        return {stage for stage, _ in talking(self.recipe)} | assigning | dividing | acting

    @cached_property
    def saying_stages(self) -> set[str]:
        """Whose half at the client may have something to say."""
        return saying(self.recipe)

    @cached_property
    def asking(self) -> dict[AskingStage, Asks]:
        """The policies that may ask clients something, by stage."""
        stages = ((stage, getattr(self.recipe, stage)) for stage in get_args(AskingStage))
        return {stage: policy for stage, policy in stages if isinstance(policy, Asks)}

    @property
    def wants_reports(self) -> bool:
        return isinstance(self.recipe.weights, Reports)


def to_bytes(message: Message, terms: Terms) -> bytes:
    """A message, checked and packed. If a client's numbers are not finite, the server shall know of it."""
    plain = dict(vars(message))
    if isinstance(message, Hello):
        plain |= plain.pop("supply")._asdict()
    if isinstance(message, Order) and message.circle is not None:
        plain["circle"] = dict(vars(message.circle))
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in plain.items()}
    kind = type(message).__name__
    with suppress(*[Diverged] if isinstance(message, Reply | Answer) else []):
        _read(kind, plain, terms)
    payload = tree_to_bytes({"thalweg": FORMAT, "kind": kind, "fields": plain})
    _check_size(payload, terms)
    return payload


def from_bytes(payload: bytes, terms: Terms, kind: type[T]) -> T:
    """A message of a certain kind, unpacked and checked."""
    message: T = _unpacked(payload, terms, kind.__name__)
    return message


def errand_from(payload: bytes, terms: Terms) -> Errand:
    """What a client may be sent."""
    message: Errand = _unpacked(payload, terms, "Order", "Question", "Call")
    return message


def news_from(payload: bytes, terms: Terms) -> News:
    """What a client may send when it has been asked something."""
    message: News = _unpacked(payload, terms, "Reply", "Answer", "Token")
    return message


def _unpacked(payload: bytes, terms: Terms, *kinds: str) -> Any:
    _check_size(payload, terms)
    tree = tree_from_bytes(payload, LONGEST_OUTLINE)
    if not isinstance(tree, dict) or tree.keys() != {"thalweg", "kind", "fields"}:
        raise BadMessage("this is not a message: expected thalweg, kind and fields.")
    head = Fields("the message", {name: tree[name] for name in ("thalweg", "kind")})
    if (version := head.whole("thalweg")) != FORMAT:
        raise BadMessage(
            f"this message has format {version}, expected {FORMAT}. Do both sides run the same version?"
        )
    return _read(head.word("kind", kinds), tree["fields"], terms)


def _read(kind: str, plain: Any, terms: Terms) -> Any:
    fields = Fields(kind, plain)
    message = READERS[kind](fields, terms)
    fields.end()
    return message


PAIRS: tuple[tuple[type[Errand], type[News], tuple[str, ...]], ...] = (
    (Order, Reply, ("models", "rehearsal")),
    (Question, Answer, ("stage",)),
    (Call, Token, ("step", "rehearsal")),
)  # what answers what, and which fields it repeats


def check_fits(came: News, asked: Errand) -> None:
    """Refuse what is not the reply to this very order, or the answer to this very question."""
    kind, names = next((kind, names) for of, kind, names in PAIRS if isinstance(asked, of))
    if not isinstance(came, kind):
        raise BadMessage(
            f"{type(came).__name__} of client {came.client}: it does not answer {type(asked).__name__}."
        )
    for name in ("rnd", "client", *names):
        said, wanted = (_plain(getattr(message, name)) for message in (came, asked))
        if said != wanted:
            raise BadMessage(
                f"{type(came).__name__} of client {came.client}: {name} is {said!r}, "
                f"asked was {wanted!r}; it came too late, or from somebody else."
            )


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _check_size(payload: bytes, terms: Terms) -> None:
    if len(payload) > terms.most_bytes:
        raise BadMessage(
            f"a message of {len(payload)} bytes is too long: at most {terms.most_bytes}, that is "
            f"{terms.most_models} models of {terms.num_params} parameters and a megabyte."
        )


# --- one reader per kind: takes every field out and checks it ---


def _hello(fields: Fields, terms: Terms) -> Hello:
    supply = Supply(
        total=fields.number("total", least=0),
        is_historical=fields.yes_or_no("is_historical"),
        rounds=fields.number("rounds", least=0),
    )
    return Hello(client=fields.whole("client"), supply=supply)


def _order(fields: Fields, terms: Terms) -> Order:
    stages = fields.group("told", known=terms.told_stages.__contains__)
    return Order(
        rnd=fields.whole("rnd"),
        client=fields.whole("client"),
        models=(models := _models(fields)),
        paces=fields.array("paces", np.float64, models.shape, least=0),
        params=fields.array("params", np.float32, (len(models), terms.num_params)),
        session=fields.whole("session"),
        age=fields.whole("age"),
        rehearsal=fields.whole("rehearsal"),
        told={stage: _told(stage, stages.group(stage)) for stage in stages.names()},
        circle=_circle(fields, terms),
    )


def _circle(fields: Fields, terms: Terms) -> Circle | None:
    """With whom an update is masked; if the recipe masks updates, always with somebody."""
    if terms.recipe.secrecy is None:
        fields.nothing("circle", NOBODY_MASKS)
        return None
    inside = fields.group("circle")
    members = _ascending(inside, "members")
    circle = Circle(members, inside.octets("keys", np.uint8, (len(members), KEY_BYTES)))
    inside.end()
    return circle


def _ascending(fields: Fields, name: str) -> Ints:
    numbers = fields.counts(name)
    if (np.diff(numbers) <= 0).any():
        raise BadMessage(f"{fields.where}: {name} must be ascending, got {numbers.tolist()}.")
    return numbers


def _models(fields: Fields) -> Ints:
    """Numbers of models in the bank, none twice."""
    return _ascending(fields, "models")


def _told(stage: str, words: Fields) -> dict[str, Floats32]:
    """What one stage tells: vectors of any length, but for an emphasis and an alarm, which have one number."""
    names, length = words.names(), 1 if stage in ("emphasis", "alarm") else None
    if stage == "emphasis":
        names = ["assigned"]
    told = {name: words.array(name, np.float32, (length,)) for name in names}
    words.end()
    return told


def _reply(fields: Fields, terms: Terms) -> Reply:
    models = _models(fields)
    num = len(models)
    num_steps, num_tested = fields.counts("num_steps", num), fields.counts("num_tested", num)
    idle = num_steps == 0  # then there is no loss, and perhaps nothing to report
    reports = fields.group("reports", known=lambda _: terms.wants_reports)
    said = fields.group("said", known=lambda name: name.partition(".")[0] in terms.saying_stages)
    masked = _masked(fields, terms)
    num_params = terms.num_params if masked is None else 0
    return Reply(
        rnd=fields.whole("rnd"),
        client=fields.whole("client"),
        models=models,
        deltas=fields.array("deltas", np.float32, (num, num_params)),
        num_samples=fields.whole("num_samples"),
        num_steps=num_steps,
        losses=fields.array("losses", np.float64, (num,), may_be_nan=idle),
        num_tested=num_tested,
        num_correct=fields.counts("num_correct", num, most=num_tested),
        rehearsal=fields.whole("rehearsal"),
        reports={
            name: reports.array(name, np.float64, (num,), may_be_nan=idle)
            for name in reports.names()
        },
        said={name: said.array(name, np.float32, (num, None)) for name in said.names()},
        masked=masked,
    )


def _masked(fields: Fields, terms: Terms) -> npt.NDArray[np.uint64] | None:
    """(P,) if the recipe masks updates; then nothing else will do."""
    if terms.recipe.secrecy is None:
        fields.nothing("masked", NOBODY_MASKS)
        return None
    return fields.octets("masked", np.uint64, (terms.num_params,))


def _question(fields: Fields, terms: Terms) -> Question:
    stage = fields.word("stage", terms.asking)
    bank = fields.array("bank", np.float32, (None, terms.num_params))
    if (len(bank) > 0) != terms.asking[stage].shows_models:
        raise ShapeMismatch(
            f"Question: {len(bank)} models came with the question of the {stage} "
            f"{type(terms.asking[stage]).__name__}, which shows "
            f"{'them' if terms.asking[stage].shows_models else 'none'}."
        )
    return Question(fields.whole("rnd"), fields.whole("client"), stage, bank)


def _answer(fields: Fields, terms: Terms) -> Answer:
    words = fields.group("words")
    return Answer(
        rnd=fields.whole("rnd"),
        client=fields.whole("client"),
        stage=fields.word("stage", terms.asking),
        words={
            name: words.array(name, np.float64, (None,), may_be_nan=True) for name in words.names()
        },
    )


def _call(fields: Fields, terms: Terms) -> Call:
    step = _mask_step(fields, terms)
    members, words = _ascending(fields, "members"), fields.group("words")
    return Call(
        rnd=fields.whole("rnd"),
        client=fields.whole("client"),
        step=step,
        members=members,
        rehearsal=fields.whole("rehearsal"),
        words={
            name: words.octets(name, np.uint8, (len(members), size))
            for name, size in CALLED[step].items()
        }
        | _no_more(words),
    )


def _token(fields: Fields, terms: Terms) -> Token:
    step, words = _mask_step(fields, terms), fields.group("words")
    return Token(
        rnd=fields.whole("rnd"),
        client=fields.whole("client"),
        step=step,
        rehearsal=fields.whole("rehearsal"),
        words={
            name: words.octets(name, np.uint8, (None, size)) for name, size in GIVEN[step].items()
        }
        | _no_more(words),
    )


def _mask_step(fields: Fields, terms: Terms) -> MaskStep:
    return fields.word("step", get_args(MaskStep) if terms.recipe.secrecy is not None else ())


def _no_more(words: Fields) -> dict[str, Any]:
    words.end()
    return {}


READERS: dict[str, Callable[[Fields, Terms], Any]] = {
    "Hello": _hello,
    "Order": _order,
    "Reply": _reply,
    "Question": _question,
    "Answer": _answer,
    "Call": _call,
    "Token": _token,
}
