"""A model of Hugging Face transformers with Heist's attention, on the simulated GPU: the
same logits and the same generated tokens as with PyTorch's."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: models with attn_implementation='heist' are not tested"
)

import heist.torch as ht


def model(implementation, **more):
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, attn_implementation=implementation, **more,
    )  # fmt: skip
    torch.manual_seed(5)
    return transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()


@pytest.fixture(scope="module")
def models():
    ht.register_transformers()
    return model("heist"), model("sdpa")


@pytest.mark.parametrize("padded", [0, 5])
def test_logits_and_generated_tokens(models, padded):
    ours, theirs = models
    tokens = torch.randint(0, 64, (2, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    mask[0, :padded] = 0
    with torch.no_grad():
        found, want = (m(tokens, attention_mask=mask).logits.float() for m in (ours, theirs))
        # Where a token is padding, what comes out means nothing.
        there = mask.bool()
        assert (found[there] - want[there]).abs().max() <= 0.05 * want[there].abs().max()
        generated = [
            m.generate(tokens, attention_mask=mask, max_new_tokens=3, do_sample=False, pad_token_id=0) for m in (ours, theirs)
        ]
    assert generated[0].shape == (2, 15) and torch.equal(generated[0][:, :12], tokens)
    # Tokens follow the larger of two logits; where rounding decides, either is right.
    same = (generated[0] == generated[1])[:, 12:].float().mean()
    assert same >= 0.5, generated


@pytest.mark.parametrize("padded", [0, 5])
def test_a_step_of_training_through_a_soft_cap(padded):
    """Gemma 2: a soft-cap in every layer, and a window in every second one."""
    ht.register_transformers()
    tokens = torch.randint(0, 64, (2, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    mask[0, :padded] = 0
    # What a token of padding foretells means nothing.
    labels = tokens.masked_fill(mask.roll(1, 1) == 0, -100).masked_fill(mask == 0, -100)
    gradients = []
    for implementation in ("heist", "eager"):
        config = transformers.Gemma2Config(
            vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, max_position_embeddings=64, sliding_window=4, attn_logit_softcapping=2.0, query_pre_attn_scalar=1,
            attn_implementation=implementation,
        )  # fmt: skip
        torch.manual_seed(5)
        one = transformers.Gemma2ForCausalLM(config).to(torch.bfloat16)
        one(tokens, attention_mask=mask, labels=labels).loss.backward()
        gradients.append({name: p.grad.float() for name, p in one.named_parameters() if "_proj" in name})
    for name, found in gradients[0].items():
        want = gradients[1][name]
        assert (found - want).norm() <= 0.05 * want.norm(), name
