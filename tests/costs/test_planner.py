"""The planner beyond its published figures: sizes from real heads, mixtures, windows, refusals, changes, pools."""

from dataclasses import replace

import pytest

from paceline.costs.capacity import Replica, queue_wait_s
from paceline.costs.changes import effects
from paceline.costs.drift import turns
from paceline.costs.estimator import DatasheetEstimator
from paceline.costs.formats import WEIGHT_FORMATS, kv_format, weight_format
from paceline.costs.hardware import CATALOGUE, Hardware, find_hardware
from paceline.costs.known_models import KNOWN_MODELS, find_model, known_model
from paceline.costs.load import Load, Margins, Targets
from paceline.costs.planner import plan
from paceline.costs.pools import plan_pools
from paceline.costs.question import Question
from paceline.costs.step import LinearLaw, StepWork, decode_work, prefill_work
from paceline.costs.units import GB, GIB, sized
from paceline.errors import ConfigError

H100 = find_hardware("H100")
NODE = DatasheetEstimator(find_model("llama-3-70b"), H100, num_cards=8)
QUESTION = Question(Replica(NODE, Load(50.0, 1000, 256)), Targets(1.0, 0.030), price_per_gpu_hour=2.5)


@pytest.mark.parametrize(
    ("name", "kv_bytes"),
    [
        ("mistral-small-24b", 163_840),
        ("gpt-oss-20b", 49_152),
        ("gemma-3-270m", 18_432),
        ("llama-3-8b", 131_072),
    ],
)
def test_kv_is_counted_from_real_kv_heads_and_head_width(name: str, kv_bytes: int) -> None:
    assert DatasheetEstimator(find_model(name), H100).kv_bytes_per_token == kv_bytes


def test_windows_keep_no_more_than_they_see() -> None:
    gemma = find_model("gemma-3-270m")
    assert gemma.kv_numbers(512) == 512 * gemma.kv_numbers_per_token
    # 3 of 18 layers see all 8192 tokens, 15 see 512.
    assert gemma.kv_numbers(8192) == (3 * 8192 + 15 * 512) * 2 * 256


def test_a_mixture_is_kept_whole_and_computed_in_part() -> None:
    mixtral = find_model("mixtral-8x7b")
    one = DatasheetEstimator(mixtral, H100)
    assert one.weights_bytes / GB == pytest.approx(93.4, abs=0.05)
    load = Load(None, 1000, 200)
    refused = plan(Question(Replica(one, load), Targets()))
    assert refused.refusal is not None
    assert refused.refusal.startswith("does not fit: weights 93.4 GB")
    fits = plan(Question(Replica(replace(one, num_cards=2), load), Targets()))
    assert fits.refusal is None
    assert fits.memory.kv_bytes == pytest.approx(2 * 80 * GIB * 0.9 - 93.406e9, rel=1e-3)
    assert sized(fits.memory.kv_bytes) in fits.reasons[2]
    in_int4 = replace(one, weights=weight_format("int4"))
    assert in_int4.weights_bytes / GB == pytest.approx(26, abs=0.5)
    assert in_int4.weights_bytes / mixtral.num_params == pytest.approx(0.56, rel=0.05)
    assert one.flops(decode_work(1, 10)) == pytest.approx(2 * 12.88e9)


def test_a_mixture_reads_the_experts_its_tokens_choose() -> None:
    mixtral = find_model("mixtral-8x7b")
    assert mixtral.params_read(1) == pytest.approx(mixtral.active_params)
    assert mixtral.active_params < mixtral.params_read(3) < mixtral.num_params
    assert mixtral.params_read(100) == pytest.approx(mixtral.num_params)


def test_bytes_are_named_in_both_units() -> None:
    assert sized(500 * GIB) == "537 GB (500 GiB)"
    assert sized(80e9) == "80 GB (74.5 GiB)"


def test_the_linear_law_is_the_published_one() -> None:
    assert LinearLaw().step_s(StepWork()) == 0.005
    assert LinearLaw().step_s(StepWork(num_prefill_tokens=100, num_decode_rows=8)) == pytest.approx(0.011)
    with pytest.raises(ConfigError, match="fixed_s must be a number from 0"):
        LinearLaw(fixed_s=-1.0)


def test_a_chunk_attends_what_is_cached_and_itself() -> None:
    # 2 rows, 3 tokens each behind 4 cached ones: 5 + 6 + 7 pairs a row.
    work = prefill_work(2, 3, num_cached=4)
    assert (work.context_tokens, work.attended_pairs, work.num_tokens) == (14, 36, 6)


def test_hardware_is_found_by_any_spelling_and_refused_with_the_list() -> None:
    assert find_hardware("rtx 4090") is find_hardware("4090") is CATALOGUE["RTX-4090"]
    assert all(card.source != "given by the user" for card in CATALOGUE.values())
    with pytest.raises(ConfigError, match=r"hardware 'H999' is not in the catalogue: H100, "):
        find_hardware("H999")
    with pytest.raises(ConfigError, match="bytes_per_s must be a positive number, got 0"):
        Hardware("mine", 1e12, 0, 1)


def test_models_are_found_with_owner_and_ending() -> None:
    assert known_model("meta-llama/Meta-Llama-3-8B-Instruct") is KNOWN_MODELS["llama-3-8b"]
    assert known_model("google/gemma-3-270m-it") is KNOWN_MODELS["gemma-3-270m"]
    assert known_model("nobody/nothing") is None


def test_formats_are_refused_with_the_list() -> None:
    assert weight_format("Q4_K_M") is WEIGHT_FORMATS["q4_k"]
    assert kv_format("bfloat16").bytes_per_number == 2.0
    with pytest.raises(ConfigError, match=r"KV format 'int4' is not known: float32, bf16"):
        kv_format("int4")


def test_a_target_out_of_reach_is_refused_with_what_is_in_reach() -> None:
    refused = plan(replace(QUESTION, targets=Targets(ttft_s=0.001, tpot_s=0.001)))
    assert refused.refusal is not None
    assert "TPOT target and TTFT target out of reach: a request alone on a replica has a TPOT of 7.5" in refused.refusal
    assert refused.fleet is None
    assert refused.binds == "targets"


def test_a_context_longer_than_the_models_is_refused() -> None:
    refused = plan(Question(Replica(NODE, Load(None, 8_000, 1_000)), Targets()))
    assert refused.refusal == "8,000 + 1,000 tokens exceed the model's context of 8,192"


def test_capacity_is_the_last_batch_inside_the_targets() -> None:
    replica, targets = QUESTION.replica, QUESTION.targets
    batch = replica.largest_batch(targets)
    assert targets.tpot_s is not None
    assert replica.at_batch(batch).tpot_s <= targets.tpot_s < replica.at_batch(batch + 1).tpot_s
    assert plan(QUESTION).binds == "TPOT target"
    assert plan(replace(QUESTION, targets=Targets())).binds == "KV memory"
    assert plan(replace(QUESTION, targets=Targets(ttft_s=0.1))).binds == "TTFT target"


@pytest.mark.parametrize("rate_per_s", [1.0, 19.6, 19.7, 50.0, 1000.0])
def test_replicas_are_the_fewest_below_the_planned_utilization(rate_per_s: float) -> None:
    replica = replace(QUESTION.replica, load=Load(rate_per_s, 1000, 256))
    fleet = plan(replace(QUESTION, replica=replica)).fleet
    assert fleet is not None
    assert fleet.utilization <= 0.8
    assert fleet.num_replicas == 1 or fleet.utilization * fleet.num_replicas / (fleet.num_replicas - 1) > 0.8
    assert fleet.point.tpot_s <= 0.030
    assert fleet.price_per_million_tokens == pytest.approx(2.5 * fleet.num_cards / (3600 * rate_per_s * 256) * 1e6)


def test_a_plan_says_what_prefill_and_decode_wait_for() -> None:
    [reason] = [reason for reason in plan(QUESTION).reasons if reason.startswith("intensity")]
    # Prefill: 2 · P · 1000 / (2 · P + 1000 · k); decode: 2 · P · 188 / (2 · P + 188 · 1128 · k).
    assert reason == (
        "intensity: prefill 998 FLOP/byte (waits for arithmetic), decode of 188 sequences 126 (memory); the ridge "
        "point is 295, for weights alone 295 sequences"
    )


def test_waiting_grows_without_bound_as_the_queue_fills() -> None:
    # M/D/1 at half load: the mean wait is half a service time.
    assert queue_wait_s(0.5, 1.0, 0.0)[0] == pytest.approx(0.5)
    # M/M/1 at half load: a whole one, and its p99 is exact: ln(0.5 / 0.01) / (1 − 0.5).
    mean_s, p99_s = queue_wait_s(0.5, 1.0, 1.0)
    assert mean_s == pytest.approx(1.0)
    assert p99_s == pytest.approx(7.824, abs=1e-3)
    assert queue_wait_s(0.99, 1.0, 0.0)[0] > 40
    assert queue_wait_s(0.005, 1.0, 0.0)[1] == 0.0


def test_short_prompts_are_prefilled_together() -> None:
    replica = Replica(NODE, Load(None, 30, 256))
    assert replica.num_prefilled_together == 10
    assert replica.prefill_s == pytest.approx(NODE.arithmetic_s(prefill_work(1, 30)), rel=0.03)
    assert replica.own_prefill_s > 5 * replica.prefill_s


def test_changes_are_ranked_by_what_a_card_serves() -> None:
    found = effects(QUESTION, plan(QUESTION))
    rates = [effect.rate_per_card_s for effect in found]
    assert rates == sorted(rates, reverse=True)
    gains = {effect.change.split(",")[0].split(" (")[0]: effect.gain for effect in found}
    assert set(gains) == {
        "weights in fp8",
        "weights in int4",
        "KV in fp8",
        "16 cards a replica instead of 8",
        "4 cards a replica instead of 8",
        "prompts of 500 tokens instead of 1",
        "50% of each prompt in the prefix cache",
        "speculation",
    }
    assert (gains["weights in int4"] or 0) > (gains["weights in fp8"] or 0) > 1.0
    assert (gains["4 cards a replica instead of 8"] or 2) < 1.0


def test_where_nothing_fits_the_changes_say_what_would() -> None:
    question = Question(Replica(replace(NODE, num_cards=1), Load(None, 1000, 256)), Targets())
    found = effects(question, plan(question))
    assert {effect.change for effect in found} == {
        "weights in fp8, where its loss is bearable",
        "weights in int4, where its loss is bearable",
        "2 cards a replica instead of 1",
    }
    assert all(effect.gain is None for effect in found)


def test_a_shared_prefix_is_kept_once_and_not_computed_again() -> None:
    replica = Replica(NODE, Load(None, 1000, 256, cached_share=0.75), Margins(0.0))
    assert replica.load.computed_tokens == 250
    free = NODE.memory_bytes - NODE.weights_bytes - NODE.kv_bytes(750)
    assert replica.memory_limit == int(free // NODE.kv_bytes(250 + 256))


def test_pools_have_enough_of_each_and_pay_for_the_transfer() -> None:
    pools = plan_pools(QUESTION)
    assert pools is not None
    # 1.27 replicas of prefill below 80 % each; 12,800 tokens/s at 129 sequences of 10.1 ms.
    assert (pools.num_prefill_replicas, pools.num_decode_replicas, pools.num_cards) == (2, 1, 24)
    assert pools.decode_batch / pools.tpot_s == pytest.approx(12_800, rel=0.01)
    assert pools.tpot_s == NODE.tpot_s(pools.decode_batch, 1128)
    assert pools.transfer_s == pytest.approx(NODE.kv_bytes(1000) / (8 * 450e9))
    tight = plan_pools(replace(QUESTION, targets=Targets(ttft_s=0.05, tpot_s=0.010)))
    assert tight is not None
    assert tight.num_prefill_replicas > 2
    assert tight.ttft_p99_s <= 0.05
    assert plan_pools(replace(QUESTION, targets=Targets(ttft_s=0.001))) is None


@pytest.mark.parametrize("ttft_s", [0.03, 0.04, 0.06, 0.1, None])
def test_the_prefill_pool_is_the_smallest_inside_the_target(ttft_s: float | None) -> None:
    pools = plan_pools(replace(QUESTION, targets=Targets(ttft_s=ttft_s)))
    assert pools is not None
    service_s = QUESTION.replica.prefill_s

    def is_good(num_replicas: int) -> bool:
        share = 50.0 * service_s / num_replicas
        if share > 0.8:
            return False
        return ttft_s is None or queue_wait_s(share, service_s, 0.0)[1] + service_s + pools.transfer_s <= ttft_s

    assert pools.num_prefill_replicas == next(number for number in range(1, 1000) if is_good(number))


def test_a_million_requests_a_second_are_planned_without_counting_them_up() -> None:
    replica = replace(QUESTION.replica, load=Load(1e6, 1000, 256))
    question = replace(QUESTION, replica=replica, targets=Targets(ttft_s=0.06, tpot_s=0.03))
    pools, fleet = plan_pools(question), plan(question).fleet
    assert pools is not None
    assert pools.num_prefill_replicas > 200_000
    assert fleet is not None
    assert fleet.num_replicas > 50_000


def test_tpot_drifts_up_and_room_shrinks_over_a_session() -> None:
    found = turns(QUESTION.replica, 66, 4)
    assert [turn.context_tokens for turn in found] == [1256, 2512, 3768, 5024]
    steps = [turn.decode_step_s for turn in found]
    # Each turn adds the same KV to read: the drift is a straight line.
    assert steps[1] - steps[0] == pytest.approx(66 * NODE.kv_bytes(1256) / NODE.bytes_per_s, rel=1e-6)
    assert steps[3] - steps[2] == pytest.approx(steps[1] - steps[0], rel=1e-6)
    assert [turn.memory_limit for turn in found] == sorted((turn.memory_limit for turn in found), reverse=True)


def test_a_fitted_step_time_takes_the_estimators_place() -> None:
    replica = replace(QUESTION.replica, step_time=LinearLaw())
    assert replica.decode_step_s(10) == pytest.approx(0.010)
    answer = plan(replace(QUESTION, replica=replica))
    assert any("by the fitted step time" in reason for reason in answer.reasons)


def test_alone_on_a_replica_nobody_waits_for_a_step() -> None:
    replica = QUESTION.replica
    quiet = replica.at_rate(1e-4)
    assert quiet is not None
    assert quiet.ttft_s == pytest.approx(replica.own_prefill_s, rel=1e-3)
    busy = replica.at_rate(16.0)
    assert busy is not None
    waiting_s, _ = queue_wait_s(busy.prefill_share, replica.prefill_s, 0.0)
    assert busy.ttft_s == pytest.approx(waiting_s + busy.decode_step_s / 2 + replica.own_prefill_s)


def test_a_target_that_one_sequence_at_a_time_would_break_is_met_by_taking_less() -> None:
    """Long prompts and short answers: with somebody always decoding, prefill takes 71 % and prompts queue for 1.2 s."""
    replica = Replica(DatasheetEstimator(find_model("llama-3-8b"), H100), Load(10.0, 6000, 8))
    assert replica.at_batch(1).ttft_p99_s > 1.0
    found = plan(Question(replica, Targets(ttft_s=1.0)))
    assert found.refusal is None
    assert found.capacity is not None
    assert found.fleet is not None
    assert 0.98 < found.capacity.ttft_p99_s <= 1.0
    assert found.binds == "TTFT target"
    assert found.fleet.num_replicas == 3
    assert any("with a sequence always under way, 5.085 requests/s, prefill takes 71%" in r for r in found.reasons)


def test_measured_steps_say_nothing_of_other_formats_and_cards() -> None:
    question = replace(QUESTION, replica=replace(QUESTION.replica, step_time=LinearLaw()))
    names = [effect.change for effect in effects(question, plan(question))]
    assert names
    assert not any("weights in" in name or "KV in" in name or "cards a replica" in name for name in names)


def test_mixtral_goes_by_its_name_on_the_hub() -> None:
    assert find_model("mistralai/Mixtral-8x7B-Instruct-v0.1") is find_model("mixtral-8x7b")
    assert known_model("mistralai/Mistral-7B-v0.1") is None
