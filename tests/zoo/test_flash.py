"""CUDA's own kernels, on a machine without it: what torch's varlen_attn is given for windows, against its definition,
and when FlashAttention-3 takes the place of torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import attention
from torch.nn.attention import varlen

import zoo
from zoo.attend import attend, attention_backend, executed_backends, pick
from zoo.attending import fused
from zoo.attending.backends import _varlen_trial as varlen_trial
from zoo.attending.backends import varlen as windows
from zoo.attending.backends.varlen import HAS_WINDOWS
from zoo.attending.fused import use_flash_3
from zoo.attending.visible import Needs, Scoring, Visible

T, WINDOW, HEADS = 21, 5, 4


def by_definition(
    q: Tensor, k: Tensor, v: Tensor, *sizes: Any, scale: float, window_size: tuple[int, int], enable_gqa: bool
) -> Tensor:
    """Text by text, query by query: a query at i sees keys from i − left to i + right. q: (Σ T, H, d)."""
    ends, ends_of_keys, most, most_keys = sizes
    assert torch.equal(ends, ends_of_keys) and ends.dtype == torch.int32 and most == most_keys == T
    assert enable_gqa == (q.shape[1] != k.shape[1])
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    rows = []
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        for i in range(begin, end):
            seen = slice(max(begin, i - window_size[0]), min(end, i + window_size[1] + 1))
            weights = torch.einsum("hd,shd->hs", q[i], k[seen] * scale).softmax(dim=-1)
            rows.append(torch.einsum("hs,shd->hd", weights, v[seen]))
    return torch.stack(rows)


@pytest.mark.parametrize("kv_heads", [HEADS, 2, 1])
@pytest.mark.parametrize("window", [1, WINDOW])
def test_it_is_the_reference(kv_heads: int, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients included."""
    monkeypatch.setattr(varlen, "varlen_attn", by_definition)
    index, found = torch.arange(T), []
    draw = torch.Generator().manual_seed(0)
    qkv = [torch.randn(2, heads, T, 8, generator=draw, dtype=torch.float64) for heads in (HEADS, kv_heads, kv_heads)]
    for backend in ("plain", "varlen"):
        learned = [each.clone().requires_grad_() for each in qkv]
        with attention_backend(backend):
            out = attend(*learned, Visible(index, index, window), Scoring(0.4))
        out.square().sum().backward()
        found.append([out.detach(), *(leaf.grad for leaf in learned)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("visible", "scoring", "features"),
    [
        ({}, {}, 8),
        ({"window": 5}, {"dropout": 0.1}, 8),
        ({"window": 5}, {"softcap": 3.0}, 8),
        ({"window": 5, "left_pad": torch.tensor([0, 2])}, {}, 8),
        ({"window": 5}, {}, 12),
    ],
    ids=str,
)
def test_what_it_cannot_do_is_refused(visible: dict[str, Any], scoring: dict[str, Any], features: int) -> None:
    index, q = torch.arange(T), torch.randn(2, HEADS, T, features)
    with attention_backend("varlen"), pytest.raises(ValueError, match="the varlen backend needs"):
        attend(q, q, q, Visible(index, index, **visible), Scoring(1.0, **scoring))


def flawless(q: Tensor, k: Tensor, v: Tensor, *_: Any, scale: float, window_size: tuple[int, int], **__: Any) -> Tensor:
    """Two texts of one length, end to end, by dense matrices. q: (2 T, H, d)."""
    length = len(q) // 2
    place = torch.arange(length)
    far = place[:, None] - place
    q, k, v = (x.unflatten(0, (2, length)).transpose(1, 2).float() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = (q @ k.mT * scale).masked_fill((far < 0) | (far > window_size[0]), float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(0, 1).to(torch.bfloat16)


def too_wide(*given: Any, window_size: tuple[int, int], **rest: Any) -> Tensor:
    return flawless(*given, window_size=(window_size[0] + 1, 0), **rest)


def unwritten(*given: Any, **rest: Any) -> Tensor:
    out = flawless(*given, **rest)
    return torch.where(torch.arange(len(out))[:, None, None] == len(out) - 1, torch.nan, out)


def refusing(*_: Any, **__: Any) -> Tensor:
    raise RuntimeError("no kernel image is available")


def test_a_trial_tells_a_right_kernel_from_wrong_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong ones: a window off by one, rows left unwritten, a kernel that refuses the GPU."""
    for kernel, is_right in ((flawless, True), (too_wide, False), (unwritten, False), (refusing, False)):
        monkeypatch.setattr(varlen, "varlen_attn", kernel)
        assert varlen_trial.try_kernel("cpu") is is_right


def test_a_faulty_kernel_is_named_once_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU plans for GPUs elsewhere, and tries nothing."""
    begun: list[str] = []

    def trial() -> str:
        begun.append("hangs")
        return "hangs"

    monkeypatch.setattr(windows, "fault", trial)
    index = torch.arange(64, device="meta")
    q, mask = torch.empty(2, 4, 64, 32, device="meta", requires_grad=True), Visible(index, index, WINDOW)
    needs = Needs.of(q, q, q, mask, Scoring(1.0))
    if HAS_WINDOWS:
        assert pick("cuda", torch.bfloat16, needs) == "varlen"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.warns(UserWarning, match="^torch's varlen_attn hangs on this GPU; windows use another kernel$"):
        assert {pick("cuda", torch.bfloat16, needs) for _ in range(2)} <= {"flex", "band", "fused"}
    assert begun == ["hangs"]


def test_a_model_trains_through_it_in_shapes() -> None:
    """Tensors without data pass through torch's own operator, forward and backward."""
    spec = zoo.load("small", d_model=32, n_layers=2, **{"block.mixer.window": WINDOW, "block.mixer.heads": HEADS})
    with FakeTensorMode(), attention_backend("varlen"):
        model = zoo.Decoder(spec)
        tokens = torch.zeros(2, T + 1, dtype=torch.long)
        loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_WINDOWS, reason="torch before 2.13 has no windows there")
@pytest.mark.parametrize("kv_heads", [HEADS, 1])
def test_the_kernel_of_a_gpu_is_the_reference(kv_heads: int) -> None:
    index, found = torch.arange(T, device="cuda"), []
    draw = torch.Generator("cuda").manual_seed(0)
    shapes = ((2, heads, T, 64) for heads in (HEADS, kv_heads, kv_heads))
    qkv = [torch.randn(shape, generator=draw, device="cuda", dtype=torch.bfloat16) for shape in shapes]
    for backend in ("plain", "varlen"):
        learned = [each.clone().requires_grad_() for each in qkv]
        with attention_backend(backend):
            out = attend(*learned, Visible(index, index, WINDOW), Scoring(0.125))
        out.float().square().sum().backward()
        found.append([out.detach(), *(leaf.grad for leaf in learned)])
    torch.testing.assert_close(found[1], found[0], rtol=3e-2, atol=3e-2)


def test_flash_attention_3_is_used_where_it_is_installed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is activated through a stand-in for torch's hook, since the kernel needs CUDA."""
    active: list[str] = []
    monkeypatch.setattr(attention, "activate_flash_attention_impl", active.append)
    monkeypatch.setattr(attention, "current_flash_attention_impl", lambda: active[-1] if active else None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    assert not use_flash_3()
    monkeypatch.setattr(fused, "find_spec", lambda name: name == "flash_attn_interface")
    assert not use_flash_3()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert use_flash_3() and use_flash_3()
    assert active == ["FA3"]
    index, q = torch.arange(T), torch.randn(1, HEADS, T, 8, requires_grad=True)
    with executed_backends(training=True) as taken:
        attend(q, q, q, Visible(index, index), Scoring(1.0))
        attend(q, q, q, Visible(index, index), Scoring(1.0, dropout=0.1))
    assert taken == {"fused (FlashAttention-3)", "plain"}
