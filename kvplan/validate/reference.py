"""The attention that every kernel is measured against: plain, slow, float64.

`latent_attention` is MLA's core in absorbed form (arXiv 2405.04434, section 2.1.2): one 576-wide entry per token is
key and, in its first `kv_lora_rank` elements, value of every head. `grouped_attention` is MHA, GQA and MQA.
"""

from __future__ import annotations

import torch
from torch import Tensor


def visible(lengths: Tensor, query_tokens: int, context_tokens: int) -> Tensor:
    """What each query may see, bool [batch, query_tokens, context_tokens].

    The last query of a sequence stands at its last token, so query i sees length - query_tokens + i + 1 tokens.
    """
    ends = lengths[:, None] - query_tokens + 1 + torch.arange(query_tokens, device=lengths.device)
    return torch.arange(context_tokens, device=lengths.device) < ends[..., None]


def latent_attention(
    query: Tensor, entries: Tensor, lengths: Tensor, softmax_scale: float, latent_dim: int
) -> tuple[Tensor, Tensor]:
    """Attention over MLA entries.

    query    [batch, query_tokens, heads, latent_dim + rope_dim], W_UK already absorbed
    entries  [batch, context_tokens, latent_dim + rope_dim]; slots past `lengths` [batch] are never read
    returns  output [batch, query_tokens, heads, latent_dim] (W_UV still to be applied) and the log-sum-exp of the
             scores [batch, query_tokens, heads], both float64.
    """
    keys = entries.to(torch.float64)[:, :, None]
    return grouped_attention(query, keys, keys[..., :latent_dim], lengths, softmax_scale)


def grouped_attention(
    query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, softmax_scale: float
) -> tuple[Tensor, Tensor]:
    """Attention of query heads in equal groups over KV heads: MHA, GQA (arXiv 2305.13245) and MQA (1911.02150).

    query [batch, query_tokens, heads, k_dim], keys [batch, context_tokens, kv_heads, k_dim], values likewise with
    v_dim; heads must be a multiple of kv_heads. Returns output and log-sum-exp as `latent_attention` does.
    """
    seen = visible(lengths, query.shape[1], keys.shape[1])
    grouped = torch.unflatten(query.to(torch.float64), 2, (keys.shape[2], -1))
    written = seen.any(1)[..., None, None]
    keys = keys.to(torch.float64).where(written, 0.0)
    values = values.to(torch.float64).where(written, 0.0)
    scores = torch.einsum("bqngd,bsnd->bqngs", grouped, keys) * softmax_scale
    scores = scores.masked_fill(~seen[:, :, None, None], -torch.inf)
    log_sum_exp = scores.logsumexp(-1)
    weights = (scores - log_sum_exp.masked_fill(log_sum_exp == -torch.inf, 0.0)[..., None]).exp()
    output = torch.einsum("bqngs,bsnd->bqngd", weights, values)
    return output.flatten(2, 3), log_sum_exp.flatten(2, 3)


def merge_by_log_sum_exp(outputs: Tensor, log_sum_exps: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over the whole from attention over disjoint parts, stacked along dim 0.

    outputs [parts, ..., dim] and log_sum_exps [parts, ...]; an empty part has log-sum-exp -inf. This is the reduce
    step of split-KV decode and of decode context parallelism (arXiv 2311.01282, section 3).
    """
    total = log_sum_exps.logsumexp(0)
    shares = (log_sum_exps - total.masked_fill(total == -torch.inf, 0.0)).exp()
    return (shares[..., None] * outputs).sum(0), total
