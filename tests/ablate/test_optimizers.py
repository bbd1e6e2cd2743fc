"""Every optimizer against a slow plain version in float64 or torch's own, and through a whole run."""

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.training.optimizers import Trained
from ablate.training.optimizers._cautious import CautiousDecay
from ablate.training.optimizers._stacked_muon import StackedMuon, orthogonalised
from ablate.training.optimizers.adamw import AdamW
from ablate.training.optimizers.lion import Lion
from ablate.training.optimizers.muon import Muon
from ablate.training.optimizers.schedule_free import ScheduleFree
from ablate.training.optimizers.sgd import SGD
from ablate.training.optimizers.soap import SOAP
from ablate.training.session import Session
from ablate.training.spec import TrainSpec
from ablate.training.stop import Interrupted
from store import Store
from tests.ablate.conftest import metrics_without_clock

LR, DECAY, STEPS = 0.1, 0.2, 4
KINDS = ("adamw", "lion", "muon", "schedule_free", "sgd", "soap")
GOOD = {"adamw": 0.03, "lion": 0.01, "muon": 0.03, "schedule_free": 0.1, "sgd": 0.5, "soap": 0.03}
"""Rates at which the tiny corpus is learnt."""
CONSTANT = {"schedule_free": {"schedule": "constant"}}
"""Further settings of training that a kind needs."""


def parameter(*shape: int, role: str = "input", seed: int = 0) -> Trained:
    value = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Trained(nn.Parameter(value), role, DECAY)


def gradients(like: Tensor) -> list[Tensor]:
    """The same ones at every call. They change sign and size from step to step."""
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(like.shape, generator=generator, dtype=like.dtype) * (1 + i) for i in range(STEPS)]


def after(optimizer, trained: list[Trained]) -> list[Tensor]:
    """The parameters after some steps, each with the gradients of its own shape."""
    for step in range(STEPS):
        for each in trained:
            each.parameter.grad = gradients(each.parameter)[step]
        optimizer.step()
    return [each.parameter.detach() for each in trained]


def same(found: Tensor, expected: list[list[float]] | Tensor) -> None:
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-12)


def entry_by_entry(start: Tensor, update) -> list[list[float]]:
    """Plain Python: decay, then `update(step, gradient, state)` of one entry at a time."""
    rows = []
    for i, row in enumerate(start.tolist()):
        rows.append([])
        for j, value in enumerate(row):
            state: dict[str, float] = {"m": 0.0, "v": 0.0}
            for step, gradient in enumerate(gradients(start), 1):
                value = value * (1 - LR * DECAY) - LR * update(step, gradient[i, j].item(), state)  # noqa: PLW2901
            rows[-1].append(value)
    return rows


def adamw_update(step, g, state):
    state["m"] = 0.8 * state["m"] + 0.2 * g
    state["v"] = 0.9 * state["v"] + 0.1 * g * g
    return (state["m"] / (1 - 0.8**step)) / (math.sqrt(state["v"] / (1 - 0.9**step)) + 1e-8)


def lion_update(_step, g, state):
    mixed = 0.9 * state["m"] + 0.1 * g
    state["m"] = 0.99 * state["m"] + 0.01 * g
    return math.copysign(1.0, mixed)


def test_adamw_is_the_paper_s():
    each = parameter(3, 4)
    expected = entry_by_entry(each.parameter.detach(), adamw_update)
    same(after(AdamW(betas=(0.8, 0.9)).build([each], LR), [each])[0], expected)


def test_lion_is_the_paper_s():
    each = parameter(3, 4)
    expected = entry_by_entry(each.parameter.detach(), lion_update)
    same(after(Lion().build([each], LR), [each])[0], expected)


class ThreePoints:
    """Schedule-Free AdamW as its paper writes it: x, y and z of one entry in plain Python. Rates rise, then stay."""

    rates = (LR / 3, 2 * LR / 3, LR, LR)

    def __init__(self, start: float, cautious: bool) -> None:
        self.x = self.y = self.z = start
        self.v, self.weights, self.cautious = 0.0, 0.0, cautious

    def step(self, t: int, g: float) -> None:
        rate = self.rates[t - 1]
        self.v = 0.9 * self.v + 0.1 * g * g
        decay = DECAY * self.y if g * self.y >= 0 or not self.cautious else 0.0
        self.z -= rate * (g / (math.sqrt(self.v / (1 - 0.9**t)) + 1e-8) + decay)
        self.weights += rate**2
        c = rate**2 / self.weights
        self.x = (1 - c) * self.x + c * self.z
        self.y = (1 - 0.8) * self.z + 0.8 * self.x


def three_points(start: Tensor, cautious: bool) -> list[ThreePoints]:
    """Every entry after its gradients, in the order of the rows."""
    found = [ThreePoints(value, cautious) for value in start.flatten().tolist()]
    for t, gradient in enumerate(gradients(start), 1):
        for entry, g in zip(found, gradient.flatten().tolist(), strict=True):
            entry.step(t, g)
    return found


@pytest.mark.parametrize("cautious", [False, True])
def test_schedule_free_is_the_paper_s_and_scores_the_average(cautious):
    each = parameter(3, 4)
    start = each.parameter.detach().clone()
    optimizer = ScheduleFree(betas=(0.8, 0.9), cautious_decay=cautious).build([each], LR)
    for gradient, rate in zip(gradients(start), ThreePoints.rates, strict=True):
        each.parameter.grad, optimizer.param_groups[0]["lr"] = gradient, rate
        optimizer.step()
    expected = three_points(start, cautious)
    moved = each.parameter.detach().clone()
    same(moved.flatten(), [entry.y for entry in expected])
    with optimizer.in_model():
        same(each.parameter.detach().flatten(), [entry.x for entry in expected])
    assert torch.equal(each.parameter, moved)  # bit for bit
    optimizer.settle()
    same(each.parameter.detach().flatten(), [entry.x for entry in expected])


def test_schedule_free_is_its_authors_package():
    theirs = pytest.importorskip("schedulefree", reason="the authors' package is not installed")
    shapes = [(3, 4), (5,)]
    ours, others = ([parameter(*shape) for shape in shapes] for _ in range(2))
    optimizer = ScheduleFree(betas=(0.8, 0.9)).build(ours, LR)
    other = theirs.AdamWScheduleFree(
        [each.parameter for each in others], lr=LR, betas=(0.8, 0.9), weight_decay=DECAY, foreach=False
    )
    other.train()
    after(optimizer, ours)
    after(other, others)
    other.eval()
    with optimizer.in_model():
        for mine, own in zip(ours, others, strict=True):
            same(mine.parameter.detach(), own.parameter.detach())


def cautiously(start: Tensor, update) -> list[list[float]]:
    """Plain Python, from the paper: an entry decays unless the update has the other sign."""
    rows = []
    for i, row in enumerate(start.tolist()):
        rows.append([])
        for j, value in enumerate(row):
            state: dict[str, float] = {"m": 0.0, "v": 0.0}
            for step, gradient in enumerate(gradients(start), 1):
                moved = update(step, gradient[i, j].item(), state)
                agrees = moved * value >= 0
                value = value - LR * (moved + (DECAY * value if agrees else 0.0))  # noqa: PLW2901
            rows[-1].append(value)
    return rows


def test_cautious_decay_of_adamw_is_the_paper_s():
    each = parameter(3, 4)
    start = each.parameter.detach().clone()
    found = after(CautiousDecay(AdamW(betas=(0.8, 0.9)), [each], LR), [each])[0]
    same(found, cautiously(start, adamw_update))
    assert (found - torch.tensor(entry_by_entry(start, adamw_update), dtype=torch.float64)).abs().max() > 1e-3


def test_cautious_decay_of_lion_is_the_paper_s():
    each = parameter(3, 4)
    start = each.parameter.detach().clone()
    same(after(CautiousDecay(Lion(), [each], LR), [each])[0], cautiously(start, lion_update))


@pytest.mark.parametrize("optimizer", [SGD(), Muon(), SOAP(every=2)], ids=lambda optimizer: optimizer.kind)
def test_cautious_decay_of_others_is_their_own_update_and_decay_where_both_agree(optimizer):
    """One step after another, from the weights before: of SOAP, the first step changes none."""
    ours, plain = ([replace(parameter(6, 4), weight_decay=decay)] for decay in (DECAY, 0.0))
    cautious, undecayed = CautiousDecay(optimizer, ours, LR), optimizer.build(plain, LR)
    for gradient in gradients(ours[0].parameter):
        before = ours[0].parameter.detach().clone()
        plain[0].parameter.data.copy_(before)
        for each, updates in ((ours[0], cautious), (plain[0], undecayed)):
            each.parameter.grad = gradient.clone()
            updates.step()
        moved = plain[0].parameter.detach()
        expected = torch.where((before - moved) * before >= 0, moved - LR * DECAY * before, moved)
        same(ours[0].parameter.detach(), expected)


def test_cautious_decay_leaves_a_parameter_without_a_gradient_alone():
    each = parameter(3, 4)
    before = each.parameter.detach().clone()
    CautiousDecay(AdamW(), [each], LR).step()
    same(each.parameter.detach(), before)


def test_lion_leaves_a_parameter_without_a_gradient_alone():
    each = parameter(3, 4)
    before = each.parameter.detach().clone()
    Lion().build([each], LR).step()
    same(each.parameter.detach(), before)


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_the_formula_s_with_decoupled_decay(nesterov):
    def update(_step, g, state):
        state["m"] = 0.7 * state["m"] + g
        return g + 0.7 * state["m"] if nesterov else state["m"]

    each = parameter(3, 4)
    expected = entry_by_entry(each.parameter.detach(), update)
    same(after(SGD(momentum=0.7, nesterov=nesterov).build([each], LR), [each])[0], expected)


def test_sgd_without_momentum_is_torch_s_with_l2():
    """The two kinds of weight decay differ only where there is a memory."""
    ours, theirs = parameter(3, 4), parameter(3, 4)
    found = after(SGD(momentum=0.0).build([ours], LR), [ours])[0]
    same(found, after(torch.optim.SGD([theirs.parameter], lr=LR, weight_decay=DECAY), [theirs])[0])


@pytest.mark.parametrize("adjust", ["match_rms_adamw", "original"])
def test_muon_is_torch_s_on_matrices_and_adamw_elsewhere(adjust):
    shapes = {(6, 4): "input", (4, 6): "output", (8, 4): "embedding", (9, 4): "head", (4,): "gain", (2, 5, 3): "input"}
    ours, theirs = ([parameter(*shape, role=role) for shape, role in shapes.items()] for _ in range(2))
    found = after(Muon(adjust=adjust, adamw_lr_ratio=0.25).build(ours, LR), ours)
    matrices, rest = [each.parameter for each in theirs[:2]], [each.parameter for each in theirs[2:]]
    muon = torch.optim.Muon(matrices, lr=LR, weight_decay=DECAY, adjust_lr_fn=adjust)
    adamw = torch.optim.AdamW(rest, lr=LR * 0.25, betas=(0.9, 0.95), weight_decay=DECAY)
    for mine, other in zip(found, [*after(muon, theirs[:2]), *after(adamw, theirs[2:])], strict=True):
        same(mine, other)


@pytest.mark.parametrize(("adjust", "scale"), [("match_rms_adamw", 0.2 * math.sqrt(12)), ("original", math.sqrt(1.5))])
def test_muon_s_update_is_nearly_orthogonal(adjust, scale):
    """U Vᵀ of the gradient by the SVD, to within what five Newton–Schulz steps reach."""
    each = replace(parameter(12, 8), weight_decay=0.0)
    before, gradient = each.parameter.detach().clone(), gradients(each.parameter)[0]
    each.parameter.grad = gradient
    Muon(adjust=adjust).build([each], LR).step()
    update = (before - each.parameter.detach()) / (LR * scale)
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    inner = left.T @ update @ right.T
    assert ((inner.diag() > 0.6) & (inner.diag() < 1.3)).all()
    assert (inner - inner.diag().diag()).abs().max() < 0.05


@pytest.mark.parametrize(("adjust", "scale"), [("match_rms_adamw", 0.2 * math.sqrt(6)), ("original", math.sqrt(1.5))])
def test_normuon_is_its_authors_update(adjust, scale):
    """Row by row: the root of the average of mean squares, and the length before."""
    each = parameter(6, 4)
    start = each.parameter.detach().clone()
    found = after(Muon(adjust=adjust, momentum=0.8, neuron_beta=0.7).build([each], LR), [each])[0]
    momentum, rows, value = torch.zeros_like(start), [0.0] * 6, start.clone()
    for gradient in gradients(start):
        momentum = 0.8 * momentum + 0.2 * gradient
        moved = 0.2 * gradient + 0.8 * momentum
        update = orthogonalised(moved[None], (3.4445, -4.7750, 2.0315), 5, 1e-7)[0].double()
        length = update.norm()
        for i in range(6):
            rows[i] = 0.7 * rows[i] + 0.3 * float(update[i] @ update[i]) / 4
            update[i] = update[i] / math.sqrt(rows[i])
        value = value * (1 - LR * DECAY) - LR * scale * update * (length / update.norm())
    torch.testing.assert_close(found, value, rtol=1e-6, atol=1e-7)


def test_normuon_moves_all_neurons_alike():
    """After one step every row has one root mean square, whatever its gradient's."""
    each = replace(parameter(4, 16), weight_decay=0.0)
    before = each.parameter.detach().clone()
    each.parameter.grad = gradients(before)[0] * torch.tensor([1.0, 1e-2, 1e2, 1e-4])[:, None]
    Muon(neuron_beta=0.95).build([each], LR).step()
    moved = (each.parameter.detach() - before).square().mean(dim=1).sqrt()
    torch.testing.assert_close(moved, torch.full_like(moved, moved[0].item()), rtol=1e-3, atol=0)


def test_normuon_has_no_rule_for_other_widths():
    assert Muon().width_factors(2.0) is not None
    assert Muon(neuron_beta=0.9).width_factors(2.0) is None


def test_normuon_goes_on_from_its_state():
    whole, cut = parameter(6, 4), parameter(6, 4)
    optimizer = Muon(neuron_beta=0.9).build([whole], LR)
    parts = [Muon(neuron_beta=0.9).build([cut], LR) for _ in range(2)]
    for step, gradient in enumerate(gradients(whole.parameter)):
        if step == 2:
            parts[1].load_state_dict(parts[0].state_dict())
        for each, updates in ((whole, optimizer), (cut, parts[step // 2])):
            each.parameter.grad = gradient.clone()
            updates.step()
    same(cut.parameter.detach(), whole.parameter.detach())


@pytest.mark.parametrize("sides", [(True, True), (True, False), (False, False)], ids=str)
def test_soap_is_the_papers_algorithm_3(sides):
    """In coordinates: the momentum and the gradient as sums over eigenvectors, one pair at a time. The first gradient
    gives the bases alone, and a side that is too wide keeps its own."""
    each = parameter(*(4 if side else 6 for side in sides))
    start = each.parameter.detach().clone()
    found = after(SOAP(betas=(0.8, 0.7), every=2, max_features=5).build([each], LR), [each])[0]
    value, momentum = start.clone(), torch.zeros_like(start)
    grams, bases, square = None, None, torch.zeros_like(start)
    for t, g in enumerate(gradients(start)):
        products = (g @ g.T, g.T @ g)
        if grams is None:
            grams = [0.3 * product for product in products]
            vectors = [torch.linalg.eigh(gram)[1].flip(1) for gram in grams]
            bases = [q if side else torch.eye(len(q)).double() for q, side in zip(vectors, sides, strict=True)]
            continue
        momentum = 0.8 * momentum + 0.2 * g
        update = torch.zeros_like(start)
        for i in range(start.shape[0]):
            for j in range(start.shape[1]):
                pair = torch.outer(bases[0][:, i], bases[1][:, j])
                square[i, j] = 0.7 * square[i, j] + 0.3 * (pair * g).sum() ** 2
                m, v = (pair * momentum).sum() / (1 - 0.8**t), square[i, j] / (1 - 0.7**t)
                update += m / (v.sqrt() + 1e-8) * pair
        value = value * (1 - LR * DECAY) - LR * update
        for n, side in enumerate(sides):
            grams[n] = 0.7 * grams[n] + 0.3 * products[n]
            if side and t % 2 == 0:
                values = torch.stack([q @ grams[n] @ q for q in bases[n].T])
                order = sorted(range(len(values)), key=lambda k: -float(values[k]))
                bases[n] = torch.linalg.qr(grams[n] @ bases[n][:, order])[0]
                square = square[order] if n == 0 else square[:, order]
    same(found, value)


def test_soap_leaves_all_but_matrices_to_adamw():
    shapes = {(8, 4): "embedding", (9, 4): "head", (4,): "gain", (2, 5, 3): "input"}
    ours, theirs = ([parameter(*shape, role=role) for shape, role in shapes.items()] for _ in range(2))
    found = after(SOAP().build(ours, LR), ours)
    for mine, other in zip(found, after(AdamW(betas=(0.95, 0.95)).build(theirs, LR), theirs), strict=True):
        same(mine, other)


def test_soap_turns_a_gradient_of_one_direction_into_one_step():
    """Of a matrix of rank one, whose basis does not change, Adam's first step is ± lr along its one pair of vectors."""
    each = replace(parameter(5, 3), weight_decay=0.0)
    left, right = (torch.nn.functional.normalize(torch.arange(1.0, n + 1).double(), dim=0) for n in (5, 3))
    before, optimizer = each.parameter.detach().clone(), SOAP().build([each], LR)
    for size in (3.0, 0.01):
        each.parameter.grad = size * torch.outer(left, right)
        optimizer.step()
    along = (before - each.parameter.detach()) @ right @ left
    assert float(along) == pytest.approx(LR, rel=1e-6)


def test_both_parts_of_muon_follow_one_schedule():
    trained = [parameter(6, 4), parameter(4, role="gain")]
    groups = Muon(adamw_lr_ratio=0.25).build(trained, LR).param_groups
    assert [(group["lr"], group["lr_factor"]) for group in groups] == [(LR, 1.0), (LR * 0.25, 0.25)]


@pytest.mark.parametrize("role", ["input", "gain"])
def test_muon_with_one_part_alone(role):
    each = parameter(6, 4, role=role)
    assert len(Muon().build([each], LR).param_groups) == 1


WRONG = (
    {"kind": "adamw", "momentum": 0.9},
    {"kind": "sgd", "betas": [0.9, 0.95]},
    {"kind": "lion", "nesterov": True},
    {"kind": "muon", "adjust": "rms"},
    {"kind": "sgd", "momentum": 0, "nesterov": True},
    {"kind": "lion", "betas": [0.9]},
    {"kind": "lion", "betas": [0.9, 1.0]},
    {"kind": "adam"},
    {"kind": "schedule_free", "betas": [0.0, 0.9]},
    {"betas": [0.9, 0.95]},
)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_setting_that_is_not_used_is_an_error(wrong):
    with pytest.raises(ValidationError):
        TrainSpec.model_validate({"optimizer": wrong})


def test_schedule_free_needs_a_constant_rate_and_no_other_average():
    with pytest.raises(ValidationError, match=r"schedule_free averages instead .* set train.schedule to constant"):
        TrainSpec.model_validate({"optimizer": "schedule_free"})
    constant = {"optimizer": "schedule_free", "schedule": "constant"}
    assert TrainSpec.model_validate(constant).warmup > 0
    with pytest.raises(ValidationError, match="scores and stores an average of its own"):
        TrainSpec.model_validate({**constant, "average": {"kind": "ema"}})


def test_schedule_free_stores_the_average_and_not_the_last_weights(tmp_path, identity, corpus, numerics):
    document = identity(steps=8, lr=0.1, optimizer="schedule_free", schedule="constant")
    trained, stored = (Session(Store(tmp_path / name), document, corpus, numerics) for name in ("trained", "stored"))
    for _ in trained.rehearse():
        pass
    expected = dict(trained.learner.optimizer.pairs())
    ending = stored.run()
    assert ending.loss == ending.place.validation_loss  # of the same windows, and of the average too
    for found, (last, average) in zip(stored.model.parameters(), expected.items(), strict=True):
        assert torch.equal(found, average) and not torch.equal(found, last)


@pytest.mark.parametrize("kind", KINDS)
def test_a_toy_model_learns(tmp_path, kind, identity, corpus, numerics):
    settings = {"lr": GOOD[kind], "optimizer": kind, **CONSTANT.get(kind, {})}
    document = identity(steps=40, model={"tie_embeddings": False}, **settings)
    store = Store(tmp_path)
    ending = Session(store, document, corpus, numerics).run()
    assert ending.status == "finished"
    assert ending.loss < 0.5 * math.log(16)


@pytest.mark.parametrize("kind", [*KINDS, "cautious"])
def test_a_run_stopped_at_any_step_ends_with_the_same_bits(tmp_path, kind, identity, corpus, numerics):
    optimizer = {"kind": "adamw", "cautious_decay": True} if kind == "cautious" else kind
    document = identity(steps=7, lr=GOOD.get(kind, 0.03), optimizer=optimizer, **CONSTANT.get(kind, {}))
    whole = Session(Store(tmp_path / "whole"), document, corpus, numerics)
    whole.run()
    stops = iter([False, True] * 7)
    while True:
        session = Session(Store(tmp_path / "cut"), document, corpus, numerics, stop=lambda: next(stops))
        try:
            session.run()
        except Interrupted:
            continue
        break
    paths = (each.store.metrics_path(document.digest) for each in (whole, session))
    first, second = map(metrics_without_clock, paths)
    assert first == second
    for a, b in zip(whole.model.parameters(), session.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_stacked_matrices_are_updated_as_one_by_one() -> None:
    """As on a GPU: wide, tall and square ones, to within a rounding of bfloat16, in which the steps are taken."""
    shapes = ((8, 24), (24, 8), (8, 24), (16, 16), (8, 24))
    alone, stacked = (
        kind(
            [nn.Parameter(torch.randn(s, generator=torch.Generator().manual_seed(i))) for i, s in enumerate(shapes)],
            lr=LR, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw",
        )
        for kind in (torch.optim.Muon, StackedMuon)
    )  # fmt: skip
    for step in range(STEPS):
        for optimizer in (alone, stacked):
            for number, parameter in enumerate(optimizer.param_groups[0]["params"]):
                draw = torch.Generator().manual_seed(100 * step + number)
                parameter.grad = torch.randn(parameter.shape, generator=draw)
            optimizer.step()
    for one, other in zip(alone.param_groups[0]["params"], stacked.param_groups[0]["params"], strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=0.03 * LR)
    assert stacked.state_dict()["state"].keys() == alone.state_dict()["state"].keys()


def test_a_stack_is_orthogonalised_matrix_by_matrix() -> None:
    """The same steps in float64, one matrix at a time."""
    stack = torch.randn(3, 6, 10, generator=torch.Generator().manual_seed(0)).double()
    a, b, c = 3.4445, -4.7750, 2.0315
    for own, found in zip(stack, orthogonalised(stack, (a, b, c), 5, 1e-7, torch.float64), strict=True):
        x = own / own.norm()
        for _ in range(5):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        torch.testing.assert_close(found, x, rtol=0, atol=1e-10)
