"""Workloads of which only a few numbers are published: log-normals through them. Marked as shapes, choices stated."""

import math

from paceline.workload.arrivals import Gamma
from paceline.workload.distributions import LogNormal, QuantileTable, Uniform
from paceline.workload.lengths import Lengths
from paceline.workload.named import NamedWorkload
from paceline.workload.prefixes import Documents, SharedShare, SystemPrompt
from paceline.workload.sessions import Sessions

# What we put where only a mean is published: the spread of chat traffic, about 1.
CHOSEN_SIGMA = 1.0
AZURE = "github.com/Azure/AzurePublicDataset"


def _around_mean(mean: float, sigma: float = CHOSEN_SIGMA) -> LogNormal:
    return LogNormal(mean * math.exp(-sigma * sigma / 2), sigma)


def _to_p90(median: float, p90: float) -> LogNormal:
    return LogNormal.from_quantile(median, 0.90, p90)


SHAPES = (
    NamedWorkload(
        name="azure2024_conv",
        lengths=Lengths(
            input=QuantileTable(
                (0.0, 0.10, 0.25, 0.43, 0.50, 0.60, 0.75, 0.90, 0.95, 0.98),
                (1, 300, 550, 620, 950, 1700, 2350, 3900, 5000, 6000),
            ),
            output=QuantileTable((0.0, 0.50, 0.70, 0.80, 0.90, 0.95, 0.99), (1, 40, 80, 200, 350, 450, 750)),
        ),
        source=f"Azure LLM inference trace 2024, conversation, 27.3 million requests of a week: {AZURE}",
        licence="CC-BY",
        is_shape=True,
        note="Quantiles read off a published figure, within 10 %; below the lowest we draw a line to 1 token.",
    ),
    NamedWorkload(
        name="azure2024_code",
        lengths=Lengths(
            input=QuantileTable((0.0, 0.10, 0.25, 0.50, 0.75, 0.90, 0.93), (1, 320, 930, 1930, 3350, 6300, 7650)),
            output=LogNormal(median=6.05, sigma=1.649),
        ),
        source=f"Azure LLM inference trace 2024, code completion, 16.8 million requests of a week: {AZURE}",
        licence="CC-BY",
        is_shape=True,
        note="Inputs read off a published figure, within 10 %; outputs through p90 = 50 and p99 = 280 alone.",
    ),
    NamedWorkload(
        name="mooncake_toolagent",
        lengths=Lengths(_around_mean(8596), _around_mean(182)),
        source="Mooncake tool and agent trace, 23,608 requests, FAST 2025, table 2: github.com/kvcache-ai/Mooncake",
        licence="Apache-2.0",
        is_shape=True,
        note="Means and the reused share 0.59 are published; sigma and one prefix shared by all are our choice.",
        prefix=SharedShare(0.59),
    ),
    NamedWorkload(
        name="sharegpt",
        lengths=Lengths(_around_mean(161, 1.0), _around_mean(338, 0.8)),
        source="ShareGPT as sampled for the vLLM paper (SOSP 2023): means 161 and 338",
        licence="numbers from the paper",
        is_shape=True,
        note="Sigma is our choice.",
    ),
    NamedWorkload(
        name="openchat_sharegpt4",
        lengths=Lengths(_to_p90(1730, 5696), _to_p90(415, 834)),
        source="openchat_sharegpt4 as used for Sarathi-Serve (OSDI 2024): medians 1730 and 415",
        licence="numbers from the paper",
        is_shape=True,
        note="Medians are published; the 90 % quantiles 5696 and 834 are not verified.",
    ),
    NamedWorkload(
        name="arxiv_sum",
        lengths=Lengths(_to_p90(7059, 12985), _to_p90(208, 371)),
        source="arXiv summarization as used for Sarathi-Serve (OSDI 2024): medians 7059 and 208",
        licence="numbers from the paper",
        is_shape=True,
        note="Medians are published; the 90 % quantiles 12985 and 371 are not verified.",
    ),
    NamedWorkload(
        name="burstgpt",
        lengths=Lengths(_around_mean(621), _around_mean(126)),
        source="BurstGPT, 5.29 million requests: github.com/HPMLL/BurstGPT",
        licence="see the source",
        is_shape=True,
        note="Means and the Gamma shape are published; sigma and the rate of 1/s are our choice.",
        arrivals=Gamma(rate_per_s=1.0, shape=0.25),
    ),
    NamedWorkload(
        name="coding_agent",
        lengths=Lengths(LogNormal(870, CHOSEN_SIGMA), _to_p90(252, 1700)),
        source="TraceLab coding agents, 4,265 sessions, 357,161 steps",
        licence="CC-BY-4.0",
        is_shape=True,
        note="Published: median new and answered tokens a step, answered p90 1700, steps a session (p50 15, p90 135), "
        "tool time (median about 0.35 s, 4 % over 60 s). Our choice: the rest, such as a system prompt of 16,000.",
        prefix=SystemPrompt(16_000),
        sessions=Sessions(
            num_turns=LogNormal.from_quantile(15, 0.90, 135),
            think_s=LogNormal.from_quantile(0.35, 0.96, 60),
            max_prompt_tokens=200_000,
        ),
    ),
    NamedWorkload(
        name="long_document",
        lengths=Lengths(LogNormal(40, 0.5), LogNormal(60, 0.5)),
        source="LooGLE: documents of more than 24,000 tokens, about 6,000 short questions",
        licence="numbers from the paper",
        is_shape=True,
        note="Document length is published; question and answer lengths and 8 questions each are our choice.",
        prefix=Documents(document_tokens=24_000, questions_each=8),
    ),
    NamedWorkload(
        name="orca",
        lengths=Lengths(Uniform(32, 512), Uniform(1, 128)),
        source="Orca (OSDI 2022): uniform lengths, Poisson arrivals, no end-of-sequence",
        licence="numbers from the paper",
        is_shape=True,
        note="Exactly as published: a synthetic workload.",
    ),
)
