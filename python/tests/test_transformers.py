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
