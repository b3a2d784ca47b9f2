"""Presets hold the papers' values; the small budget changes what it lists; every shown value has its origin."""

import dataclasses

import pytest

from mvindex.encoder.checkpoint import parse_family
from mvindex.errors import ConfigError
from mvindex_train.config import DataConfig, TrainConfig
from mvindex_train.config_cli import (
    SMALL_LABEL,
    ConfigRequest,
    describe,
    label,
    list_changed_names,
    load_config,
    source_of,
)
from mvindex_train.fields import read_toml
from mvindex_train.losses import epoch_tau
from mvindex_train.presets import PRESETS, Budget, preset, small_budget, value_at

PAPERS = [name for name, found in PRESETS.items() if found.paper]


def values(config, *names):
    return [value_at(config, name) for name in names]


def test_the_presets_are_the_ten_methods():
    assert list(PRESETS) == [
        "dpr",
        "me-bert",
        "poly",
        "drpq",
        "mvr",
        "camvr",
        "snippets",
        "nested",
        "sentences",
        "splits",
    ]


def test_mvr_has_its_papers_values():
    mvr = preset("mvr")
    assert values(mvr, "encoder.family", "encoder.max_views", "encoder.normalise") == ["viewers", 8, False]
    assert (mvr.loss.tau, mvr.loss.tau_floor, mvr.loss.tau_alpha, mvr.loss.local_weight) == (1.0, 0.3, 0.1, 0.01)
    assert (mvr.loss.aggregate, mvr.loss.scale, mvr.loss.answer_view) == ("max", 1.0, False)
    assert (mvr.optimiser.epochs, mvr.optimiser.learning_rate, mvr.encoder.dropout) == (40, 1e-5, 0.1)
    assert (mvr.data.batch_passages, mvr.data.hard_negatives) == (128, 1)
    assert (mvr.encoder.viewer_init, mvr.encoder.lora_rank) == ("random", None)


def test_camvr_has_its_papers_values_and_no_local_loss():
    camvr = preset("camvr")
    assert values(camvr, "encoder.family", "encoder.max_views") == ["context-viewers", 8]
    assert values(camvr, "encoder.query_length", "encoder.document_length") == [128, 256]
    assert values(camvr, "loss.answer_view", "loss.local_weight", "loss.tau_floor") == [True, 0.0, 0.3]
    assert camvr.data.batch_passages == 2 * 56
    assert values(camvr, "optimiser.precision", "optimiser.gradient_checkpointing") == ["auto", True]
    assert values(camvr, "optimiser.learning_rate", "encoder.dropout", "optimiser.epochs") == [1e-5, 0.1, 40]


def test_drpq_has_its_papers_values():
    drpq = preset("drpq")
    assert values(drpq, "encoder.family", "encoder.max_views", "encoder.document_length") == ["kmeans", 4, 512]
    assert values(drpq, "loss.aggregate", "loss.drpq_temperature") == ["drpq", 1.0]
    assert values(drpq, "optimiser.learning_rate", "data.batch_passages", "data.hard_negatives") == [2e-6, 16, 4]
    assert drpq.refresh_epochs == 1 and drpq.encoder.pooling == "cls"


def test_dpr_is_one_cls_vector_with_two_encoders():
    dpr = preset("dpr")
    assert values(dpr, "encoder.family", "encoder.max_views", "encoder.pooling", "encoder.separate") == [
        "single", 1, "cls", True
    ]  # fmt: skip
    assert values(dpr, "data.batch_passages", "data.hard_negatives", "optimiser.epochs") == [128, 1, 40]


@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_has_its_familys_number_of_views(name):
    encoder = preset(name).encoder
    assert encoder.max_views == parse_family(encoder.family).default_max_views


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_presets_score_raw_inner_products_at_scale_1_and_train_all_weights(name):
    found = preset(name)
    assert values(found, "encoder.normalise", "loss.scale", "encoder.lora_rank") == [False, 1.0, None]


@pytest.mark.parametrize("name", PRESETS)
def test_every_value_of_a_preset_says_where_it_comes_from(name):
    for field, (value, source) in PRESETS[name].values.items():
        assert value_at(preset(name), field) == value
        assert source.strip()


def test_an_unknown_preset_or_budget_is_named():
    with pytest.raises(ConfigError, match="preset: expected one of 'dpr', 'me-bert'"):
        preset("colbert")
    with pytest.raises(ConfigError, match="budget: expected 'full' or 'small'"):
        load_config(ConfigRequest(preset="mvr", budget="tiny"))
    with pytest.raises(ConfigError, match="expected a preset for the budget 'small'"):
        load_config(ConfigRequest(budget="small"))


@pytest.mark.parametrize("name", PRESETS)
def test_the_small_budget_changes_what_it_lists_and_nothing_else(name):
    full, small = preset(name), preset(name, Budget.SMALL)
    changes = {change.name: (change.full, change.small) for change in small_budget(full)}
    assert all(full_value != small_value for full_value, small_value in changes.values())
    restored = small.as_dict()
    for field, (full_value, small_value) in changes.items():
        assert value_at(small, field) == small_value
        table, _, leaf = field.rpartition(".")
        (restored[table] if table else restored)[leaf] = full_value
    assert restored | {"budget": "full"} == full.as_dict()


@pytest.mark.parametrize("name", PRESETS)
def test_the_small_budget_keeps_the_method(name):
    full, small = preset(name), preset(name, Budget.SMALL)
    kept = ("encoder.family", "encoder.max_views", "loss.aggregate", "loss.local_weight", "loss.answer_view",
            "loss.tau", "loss.tau_floor", "loss.distillation_weight")  # fmt: skip
    assert values(small, *kept) == values(full, *kept)


@pytest.mark.parametrize("name", PRESETS)
def test_the_small_budget_takes_minutes_on_unit_vectors_that_are_scaled(name):
    small = preset(name, Budget.SMALL)
    assert small.optimiser.epochs <= 2 and small.optimiser.max_steps <= 150
    assert small.data.batch_passages <= 32 and (small.encoder.document_length or 256) <= 256
    assert small.encoder.normalise is True and small.loss.scale == 20.0
    assert small.encoder.lora_rank == 8 and small.optimiser.learning_rate == 5e-4
    assert small.loss.drpq_temperature == (0.05 if small.loss.aggregate == "drpq" else 1.0)


def test_in_the_small_budget_tau_reaches_its_floor_after_the_same_share_of_the_epochs():
    # In full at epoch 12.04 of 40, that is .6 of 2 epochs: the second of the two has the floor.
    small = preset("mvr", Budget.SMALL)
    assert small.loss.tau_alpha == pytest.approx(0.1 * 40 / 2)
    assert [epoch_tau(small.loss, epoch) for epoch in (0, 1)] == [1.0, 0.3]


def test_a_flag_comes_before_the_file_and_the_file_before_the_preset(tmp_path):
    path = tmp_path / "train.toml"
    path.write_text('preset = "mvr"\n[optimiser]\nepochs = 7\nlearning_rate = 2e-5\n[loss]\ntau_alpha = 0.2\n')
    found = load_config(ConfigRequest(file=path, overrides=["optimiser.epochs=9"]))
    assert values(found, "optimiser.epochs", "optimiser.learning_rate") == [9, 2e-5]
    assert values(found, "loss.tau_alpha", "loss.tau_floor", "preset") == [0.2, 0.3, "mvr"]
    other = load_config(ConfigRequest(file=path, preset="camvr", budget="small"))
    assert values(other, "preset", "budget", "optimiser.epochs") == ["camvr", "small", 7]
    assert values(other, "encoder.family", "loss.tau_alpha") == ["context-viewers", 0.2]


def test_a_wrong_preset_in_a_file_is_named(tmp_path):
    path = tmp_path / "train.toml"
    path.write_text("preset = 3")
    with pytest.raises(ConfigError, match=r"train\.toml: preset: expected a string, got 3"):
        load_config(ConfigRequest(file=path))


def test_without_anything_given_the_settings_are_the_defaults():
    assert load_config(ConfigRequest()) == TrainConfig()


@pytest.mark.parametrize("budget", Budget)
@pytest.mark.parametrize("name", PRESETS)
def test_shown_settings_read_back_as_the_same_and_each_line_says_its_origin(name, budget, tmp_path):
    config = preset(name, budget).with_overrides(["data.train=a#1.jsonl", "optimiser.seed=4", "loss.tau=.9"])
    path = tmp_path / "shown.toml"
    path.write_text(describe(config))
    assert load_config(ConfigRequest(file=path)) == config
    lines = [line for line in describe(config).splitlines() if " = " in line and not line.startswith("#")]
    assert len(lines) == sum(len(v) if isinstance(v, dict) else 1 for v in config.as_dict().values())
    assert all(line.rpartition("  # ")[2].strip() for line in lines)
    assert read_toml(path)["loss"]["tau"] == 0.9


def test_the_origin_of_a_value_is_paper_choice_budget_or_given():
    full = preset("mvr")
    small = preset("mvr", Budget.SMALL).with_overrides(["optimiser.epochs=3", "data.train=a"])
    assert source_of(full, "loss.tau_floor") == "MVR eq. 8"
    assert source_of(full, "encoder.query_length").startswith("our choice: ")
    assert source_of(full, "optimiser.max_gradient_norm") == "default"
    assert source_of(small, "optimiser.epochs") == "given (instead of 2)"
    assert source_of(small, "data.train") == "given"
    shown = "small budget: 1e-05 -> 0.0005, few steps, of LoRA (was: DPR)"
    assert source_of(small, "optimiser.learning_rate") == shown


def test_a_base_that_is_not_the_papers_is_said():
    ours = preset("mvr")
    papers = ours.with_overrides(["encoder.base=google-bert/bert-base-uncased"])
    assert source_of(ours, "encoder.base") == "our replacement of the paper's base google-bert/bert-base-uncased"
    assert source_of(papers, "encoder.base") == "given (instead of minilm), the paper's base"
    assert label(ours) == "preset mvr; base minilm instead of google-bert/bert-base-uncased"
    assert label(papers) == "preset mvr"


def test_the_label_says_what_is_not_as_in_the_paper():
    small = preset("camvr", Budget.SMALL).with_overrides(["loss.scale=10", "data.train=a", "optimiser.seed=5"])
    assert SMALL_LABEL == "small budget: not the paper's setting"
    assert SMALL_LABEL in label(small) and label(small).endswith("; changed: loss.scale")
    assert label(preset("snippets")) == "preset snippets"
    assert SMALL_LABEL not in label(preset("snippets", Budget.SMALL))
    assert "not the preset's full setting" in label(preset("snippets", Budget.SMALL))
    assert label(TrainConfig()) == "settings of no preset"


def test_files_and_seed_are_not_changes_of_the_method():
    config = dataclasses.replace(preset("dpr"), data=dataclasses.replace(preset("dpr").data, dev=("d",)))
    assert list_changed_names(config.with_overrides(["optimiser.seed=5", "data.passages=p"])) == []
    assert list_changed_names(TrainConfig(data=DataConfig(title=False))) == ["data.title"]
