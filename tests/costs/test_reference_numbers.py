"""The field's published figures come out of the datasheet estimator and the planner, each where it belongs."""

import math

import pytest

from paceline.costs.capacity import Replica
from paceline.costs.estimator import DatasheetEstimator
from paceline.costs.formats import WEIGHT_FORMATS
from paceline.costs.hardware import CATALOGUE, find_hardware
from paceline.costs.known_models import find_model
from paceline.costs.load import Load, Margins, Targets
from paceline.costs.planner import plan
from paceline.costs.question import Question, price_per_million_tokens
from paceline.costs.step import decode_work, prefill_work
from paceline.costs.units import GB, GIB

H100 = find_hardware("H100")
LLAMA_2_7B = find_model("llama-2-7b")
LLAMA_3_70B = find_model("llama-3-70b")
NO_MARGINS = Margins(workspace_share=0.0)
SMALL = DatasheetEstimator(LLAMA_2_7B, H100)
NODE = DatasheetEstimator(LLAMA_3_70B, H100, num_cards=8)


# Hardware


@pytest.mark.parametrize(
    ("name", "flops_per_s", "bytes_per_s", "memory_bytes", "ridge"),
    [
        ("H100", 989e12, 3.35e12, 80 * GIB, 295),
        ("A100", 312e12, 2.0e12, 80 * GIB, 156),
        ("H200", 989e12, 4.8e12, 141 * GB, 206),
    ],
)
def test_a_card_has_its_datasheet_and_ridge_point(
    name: str, flops_per_s: float, bytes_per_s: float, memory_bytes: int, ridge: int
) -> None:
    card = find_hardware(name)
    assert (card.flops_per_s, card.bytes_per_s, card.memory_bytes) == (flops_per_s, bytes_per_s, memory_bytes)
    assert round(card.ridge_flops_per_byte) == ridge


# What vendors print with 2:4 sparsity, in TFLOPS. V100 and T4 have none.
WITH_SPARSITY = {
    "H100": 1979,
    "H100-PCIe": 1513,
    "H100-NVL": 1671,
    "H200": 1979,
    "B200": 4500,
    "A100": 624,
    "A100-40GB": 624,
    "L4": 242,
    "L40S": 733,
    "A10": 250,
    "RTX-3090": 142,
    "RTX-4090": 330.4,
    "RTX-5090": 419,
    "MI300X": 2614.9,
    "MI325X": 2614.9,
}


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name not in ("V100", "T4")])
def test_the_catalogue_has_dense_arithmetic_and_says_where_it_is_from(name: str) -> None:
    card = CATALOGUE[name]
    # The L40S datasheet prints 362.05 and 733: not quite a half.
    assert card.flops_per_s == pytest.approx(WITH_SPARSITY[name] * 1e12 / 2, rel=0.015)
    assert any(kind in card.source for kind in ("datasheet", "data sheet", "white paper", "Technical Brief"))


# Intensity


@pytest.mark.parametrize(("num_rows", "num_tokens"), [(1, 64), (4, 128)])
def test_prefill_intensity_is_near_two_rows_times_tokens_over_bytes_a_weight(num_rows: int, num_tokens: int) -> None:
    work = prefill_work(num_rows, num_tokens)
    params, kv_bytes = LLAMA_2_7B.num_params, SMALL.kv_bytes_per_token
    exact = 2 * params * num_rows * num_tokens / (2 * params + num_rows * num_tokens * kv_bytes)
    assert SMALL.intensity(work) == pytest.approx(exact, rel=1e-12)
    assert SMALL.intensity(work) == pytest.approx(2 * num_rows * num_tokens / 2, rel=0.025)


def test_decode_intensity_is_near_two_rows_over_bytes_a_weight_when_kv_is_small() -> None:
    params, kv_bytes = LLAMA_2_7B.num_params, SMALL.kv_bytes_per_token
    exact = 2 * params * 8 / (2 * params + 8 * 100 * kv_bytes)
    assert SMALL.intensity(decode_work(8, 100)) == pytest.approx(exact, rel=1e-12)
    assert SMALL.intensity(decode_work(8, 1)) == pytest.approx(8.0, rel=0.001)


@pytest.mark.parametrize(
    ("name", "weight_bytes", "batch"), [("H100", 2, 295), ("H100", 1, 148), ("A100", 2, 156), ("A100", 1, 78)]
)
def test_ridge_batches(name: str, weight_bytes: float, batch: int) -> None:
    assert round(find_hardware(name).ridge_batch(weight_bytes)) == batch


def test_a_step_takes_the_longer_of_arithmetic_and_memory() -> None:
    for work in (prefill_work(4, 512), decode_work(1, 512), decode_work(2_000, 16)):
        arithmetic_s = SMALL.flops(work) / (989e12 * 0.7)
        memory_s = (SMALL.weights_read(work) + SMALL.kv_read(work)) / (3.35e12 * 0.7)
        assert SMALL.step_s(work) == pytest.approx(max(arithmetic_s, memory_s), rel=1e-12)
    assert SMALL.arithmetic_s(prefill_work(4, 512)) > SMALL.memory_s(prefill_work(4, 512))
    assert SMALL.arithmetic_s(decode_work(1, 512)) < SMALL.memory_s(decode_work(1, 512))


@pytest.mark.parametrize(("name", "kib"), [("llama-2-7b", 512), ("llama-3-8b", 128), ("llama-3-70b", 320)])
def test_kv_bytes_of_a_token(name: str, kib: int) -> None:
    assert DatasheetEstimator(find_model(name), H100).kv_bytes_per_token == kib * 1024


def test_one_stream_of_a_7b_model_reads_its_weights_in_4_ms() -> None:
    at_peak = DatasheetEstimator(LLAMA_2_7B, H100, efficiency=1.0)
    assert at_peak.weights_bytes / GB == pytest.approx(13.5, abs=0.05)
    assert at_peak.tpot_s(1, 0) * 1e3 == pytest.approx(4.0, abs=0.05)
    assert 64 * at_peak.kv_bytes(4096) == 128 * GIB


def test_200_sessions_of_8192_tokens_on_a_node() -> None:
    kv_bytes = 200 * NODE.kv_bytes(8192)
    assert (kv_bytes / GIB, round(kv_bytes / GB)) == (500.0, 537)
    assert round(NODE.weights_bytes / GB) == 141
    assert round((kv_bytes + NODE.weights_bytes) / GB) == 678
    assert kv_bytes + NODE.weights_bytes > 8 * 80e9
    assert NODE.memory_limit(8192) == 203
    assert NODE.memory_limit(8192, workspace_bytes=3 * GB) < 203
    asked = Load(None, 8191, 1, num_sessions=200)
    refused = plan(Question(Replica(NODE, asked), Targets()))
    assert refused.refusal is not None
    assert "200 sequences of 8,192 tokens need 537 GB (500 GiB)" in refused.refusal
    in_fp8 = DatasheetEstimator(LLAMA_3_70B, H100, num_cards=8, kv=WEIGHT_FORMATS["fp8"])
    assert plan(Question(Replica(in_fp8, asked), Targets())).memory.num_sequences > 300


# Metrics


def test_price_of_a_million_tokens() -> None:
    # Two cards at 2.50 an hour, 1000 tokens/s: 5 / 3.6e6 tokens.
    assert price_per_million_tokens(2.5, 2, 1000.0) == pytest.approx(5 / 3.6, rel=1e-12)


def test_a_point_obeys_the_definitions_of_throughput_and_ttft() -> None:
    replica = Replica(SMALL, Load(None, 512, 256))
    point = replica.at_batch(64)
    assert point.streams_tokens_per_s == pytest.approx(64 / point.tpot_s)
    # Little's law: what is inside is what comes in times how long it stays.
    assert point.rate_per_s * 256 * point.tpot_s == pytest.approx(64, rel=1e-9)
    assert point.ttft_s > replica.own_prefill_s
    assert point.e2e_s == pytest.approx(point.ttft_s + 255 * point.tpot_s)


# Capacity planning


def test_llama_2_7b_on_one_card() -> None:
    replica = Replica(SMALL, Load(20.0, 512, 256), NO_MARGINS)
    assert replica.memory_limit == 179
    answer = plan(Question(replica, Targets(tpot_s=0.030)))
    assert answer.decode_alone is not None
    assert answer.decode_alone.batch == 169
    assert round(answer.decode_alone.tokens_per_s) == 5_647
    assert answer.decode_alone.num_replicas == pytest.approx(5_120 / 5_647, abs=1e-3)
    # One replica at 91 % of what decode alone allows: the plan takes a second.
    assert answer.fleet is not None
    assert answer.fleet.num_replicas == 2


def test_llama_3_70b_on_a_node() -> None:
    assert NODE.prefill_s(32, 2048) == pytest.approx(1.67, abs=0.005)
    assert NODE.tpot_s(32, 2048 + 128) * 1e3 == pytest.approx(8.7, abs=0.05)
    assert NODE.tpot_s(128, 2048 + 128) * 1e3 == pytest.approx(12.4, abs=0.05)
    assert 128 / NODE.tpot_s(128, 2048 + 128) == pytest.approx(10_300, rel=0.005)


def test_attention_arithmetic_adds_little_to_that_prefill() -> None:
    work = prefill_work(32, 2048)
    added_s = LLAMA_3_70B.attention_flops(work.attended_pairs) / NODE.flops_per_s
    assert added_s == pytest.approx(0.032, abs=0.0005)
    assert added_s / NODE.step_s(work) == pytest.approx(0.019, abs=0.0005)


def test_a_fleet_for_50_requests_a_second() -> None:
    replica = Replica(NODE, Load(50.0, 1000, 256))
    answer = plan(Question(replica, Targets(ttft_s=1.0, tpot_s=0.030)))
    assert answer.decode_alone is not None
    assert answer.decode_alone.batch == 1_140
    assert round(answer.decode_alone.tokens_per_s) == 38_022
    assert math.ceil(answer.decode_alone.num_replicas or 0) == 1
    assert 50 * replica.prefill_s == pytest.approx(1.27, abs=0.005)
    two = replica.at_rate(25.0)
    assert two is not None
    assert two.prefill_share == pytest.approx(0.64, abs=0.005)
    assert two.tpot_s == pytest.approx(two.decode_step_s / (1 - two.prefill_share))
    assert two.tpot_s > 0.030
    assert answer.fleet is not None
    assert (answer.fleet.num_replicas, answer.fleet.num_cards) == (3, 24)
    assert answer.fleet.point.prefill_share == pytest.approx(0.42, abs=0.005)
    assert answer.fleet.point.batch == pytest.approx(65, abs=1)
    assert answer.fleet.point.tpot_s * 1e3 == pytest.approx(15, abs=0.5)
    assert 0.6 <= answer.fleet.utilization <= 0.8
