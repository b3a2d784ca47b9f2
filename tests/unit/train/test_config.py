"""The settings of training: checks, TOML, overrides, round trips and fingerprints."""

import dataclasses
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.encoder.checkpoint.families import BUILT_IN
from mvindex.errors import ConfigError
from mvindex_train.config import (
    DataConfig,
    EncoderConfig,
    EvaluationConfig,
    LossConfig,
    OptimiserConfig,
    TrainConfig,
    check_can_train,
)
from mvindex_train.fields import kinds_of, merge, read_toml


def test_the_families_are_those_of_checkpoints():
    assert set(kinds_of(EncoderConfig)["family"].choices) == {family.name for family in BUILT_IN}


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        (OptimiserConfig, {"epochs": 0}, "optimiser.epochs: expected a whole number of at least 1"),
        (OptimiserConfig, {"epochs": True}, "optimiser.epochs: expected a whole number of at least 1"),
        (OptimiserConfig, {"epochs": 2.0}, "optimiser.epochs: expected a whole number of at least 1"),
        (OptimiserConfig, {"learning_rate": 0.0}, "optimiser.learning_rate: expected a number above 0"),
        (OptimiserConfig, {"learning_rate": float("nan")}, "optimiser.learning_rate: expected a number above 0"),
        (OptimiserConfig, {"max_steps": 0}, "optimiser.max_steps: expected a whole number of at least 1, or 'none'"),
        (
            OptimiserConfig,
            {"warmup_share": 1.5},
            "optimiser.warmup_share: expected a number of at least 0 and of at most 1",
        ),
        (OptimiserConfig, {"weight_decay": -1}, "optimiser.weight_decay: expected a number of at least 0"),
        (OptimiserConfig, {"schedule": "step"}, "optimiser.schedule: expected one of 'linear', 'constant', "),
        (LossConfig, {"tau": float("inf")}, "loss.tau: expected a number above 0"),
        (LossConfig, {"tau": 10**400}, "loss.tau: expected a number above 0, got 1000"),
        (LossConfig, {"aggregate": "mean"}, "loss.aggregate: expected one of 'max', 'drpq'"),
        (LossConfig, {"answer_view": 1}, "loss.answer_view: expected true or false"),
        (LossConfig, {"tau_floor": 0.3}, "loss: expected both tau_floor and tau_alpha or neither, got 0.3 and None"),
        (
            LossConfig,
            {"tau_floor": 2, "tau_alpha": 0.1},
            "loss.tau_floor: expected at most 1.0, the initial tau, got 2.0",
        ),
        (EncoderConfig, {"base": ""}, "encoder.base: expected a string that is not empty"),
        (EncoderConfig, {"family": "colbert"}, "encoder.family: expected one of 'snippets', 'single'"),
        (EncoderConfig, {"family": "single"}, "encoder.max_views: expected 1 for the family 'single', got 8"),
        (
            EncoderConfig,
            {"residual": 0.5},
            "encoder.residual: expected no value for the family 'snippets', which has no viewers, got 0.5",
        ),
        (
            EncoderConfig,
            {"family": "viewers", "residual": 0.5},
            "encoder.residual: expected 0 for 'viewers' without own_snippet, got 0.5",
        ),
        (EncoderConfig, {"own_snippet": True}, "encoder.own_snippet: expected no value for the family"),
        (EncoderConfig, {"lora_alpha": 16}, "encoder.lora_alpha: expected none without a lora_rank, got 16.0"),
        (EncoderConfig, {"pooling": "max"}, "encoder.pooling: expected one of 'mean', 'cls', or 'none'"),
        (DataConfig, {"train": "a.jsonl"}, "data.train: expected a list of strings"),
        (DataConfig, {"train": ("a", "")}, "data.train: expected a list of strings"),
        (DataConfig, {"passages": "none"}, "data.passages: expected a string that is not empty, or 'none'"),
        (EvaluationConfig, {"cutoff": -1}, "evaluation.cutoff: expected a whole number of at least 1"),
        (TrainConfig, {"refresh_epochs": 0}, "refresh_epochs: expected a whole number of at least 1, or 'none'"),
        (TrainConfig, {"loss": {}}, "loss: expected settings of LossConfig"),
    ],
)
def test_a_wrong_value_is_named_with_its_field_and_what_was_wanted(part, values, message):
    with pytest.raises(ConfigError) as caught:
        part(**values)
    assert str(caught.value).startswith(message)


def test_an_answer_view_needs_views_that_stand_for_parts_of_the_text():
    encoder = EncoderConfig(family="viewers")
    with pytest.raises(ConfigError, match=r"loss\.answer_view: expected False for the family 'viewers'"):
        TrainConfig(encoder=encoder, loss=LossConfig(answer_view=True))
    with pytest.raises(ConfigError, match=r"loss\.in_sequence_weight: expected 0 for the family 'viewers'"):
        TrainConfig(encoder=encoder, loss=LossConfig(in_sequence_weight=0.1))


def test_nested_views_need_a_family_whose_first_views_stay():
    for family in ("first-k", "poly"):
        TrainConfig(encoder=EncoderConfig(family=family), loss=LossConfig(nested=True))
    with pytest.raises(ConfigError, match=r"loss\.nested: expected False for the family 'snippets', got True"):
        TrainConfig(loss=LossConfig(nested=True))


def test_whole_numbers_given_for_numbers_become_numbers():
    assert repr(LossConfig(scale=20).scale) == "20.0"


def test_settings_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().budget = "small"


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("speed = 1", "unknown key 'speed'; expected one of 'preset', 'budget'"),
        ("[optimizer]\nepochs = 1", "unknown table 'optimizer'; expected one of 'preset', "),
        ("[optimiser]\nepoch = 1", "unknown key 'optimiser.epoch'; expected one of 'learning_rate', "),
        ("[optimiser]\nepochs = 0", "optimiser.epochs: expected a whole number of at least 1"),
        ("[optimiser]\nepochs = 'none'", "optimiser.epochs: expected a whole number of at least 1"),
        ("[optimiser.epochs]\nx = 1", "optimiser.epochs: expected a whole number of at least 1"),
        ("optimiser = 3", "optimiser: expected a table"),
        ("[data]\ntrain = [1]", "data.train: expected a list of strings"),
        ("[data]\ndate = 2020-01-01", "unknown key 'data.date'"),
        ("[loss\n", "invalid TOML: "),
    ],
)
def test_a_wrong_file_is_named_with_the_key(tmp_path, toml, message):
    path = tmp_path / "train.toml"
    path.write_text(toml)
    with pytest.raises(ConfigError) as caught:
        merge(TrainConfig(), read_toml(path), str(path))
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_file_that_is_missing_or_not_text_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file"):
        read_toml(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"base = '\xe9'")
    with pytest.raises(ConfigError, match=r"latin\.toml: invalid TOML: "):
        read_toml(tmp_path / "latin.toml")


def test_values_of_a_table_lie_over_the_part_and_leave_the_rest():
    base = TrainConfig(optimiser=OptimiserConfig(epochs=7, seed=3))
    found = merge(base, {"optimiser": {"epochs": 2}, "data": {"train": ["a", "b"]}}, "here")
    assert found.optimiser == OptimiserConfig(epochs=2, seed=3)
    assert found.data.train == ("a", "b") and found.loss == base.loss


def test_overrides_are_read_by_the_kind_of_their_field():
    base = TrainConfig(encoder=EncoderConfig(lora_rank=8))
    found = base.with_overrides(
        ["optimiser.epochs=3", "optimiser.learning_rate=1e-4", "encoder.lora_rank=none", "data.article_runs=true",
         "data.train=a.jsonl,b=c.jsonl", "data.dev=", "encoder.base=org/model", "refresh_epochs=2", "loss.scale=1",
         "loss.scale=20"]
    )  # fmt: skip
    assert found.optimiser == OptimiserConfig(epochs=3, learning_rate=1e-4)
    assert found.encoder == EncoderConfig(base="org/model")
    assert found.data == DataConfig(article_runs=True, train=("a.jsonl", "b=c.jsonl"))
    assert (found.refresh_epochs, found.loss.scale) == (2, 20.0)


def test_overrides_that_only_fit_together_are_taken_together():
    found = TrainConfig().with_overrides(["encoder.family=single", "encoder.max_views=1"])
    assert (found.encoder.family, found.encoder.max_views) == ("single", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimiser.epochs", "--set: expected table.name=value"),
        ("optimiser.epochs=", "--set: optimiser.epochs: expected a whole number"),
        ("optimiser.epochs=3.5", "--set: optimiser.epochs: expected a whole number"),
        ("loss.answer_view=yes", "--set: loss.answer_view: expected true or false"),
        ("loss.tau=nan", "--set: loss.tau: expected a number above 0"),
        (
            "optimizer.epochs=3",
            "--set optimizer.epochs: unknown table 'optimizer'; expected one of 'encoder', 'data', ",
        ),
        ("optimiser.epoch=3", "--set optimiser.epoch: unknown name 'epoch'; expected one of 'learning_rate'"),
        ("preset.x=3", "--set preset.x: unknown table 'preset'; expected one of 'encoder'"),
        ("epochs=3", "--set epochs: unknown name 'epochs'; expected one of 'preset', 'budget', 'refresh_epochs'"),
        ("optimiser=3", "--set optimiser: unknown name 'optimiser'; expected one of 'preset'"),
        ("preset=mvr", "--set: expected --preset mvr, got 'preset=mvr'"),
        ("budget=small", "--set: expected --budget small, got 'budget=small'"),
    ],
)
def test_a_wrong_override_is_named(text, message):
    with pytest.raises(ConfigError) as caught:
        TrainConfig().with_overrides([text])
    assert str(caught.value).startswith(message)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda text: text != "none"
)
numbers = st.floats(1e-300, 1e300)
configs = st.builds(
    TrainConfig,
    preset=st.none() | texts,
    refresh_epochs=st.none() | st.integers(1, 10**30),
    encoder=st.builds(
        EncoderConfig, base=texts, lora_rank=st.none() | st.integers(1), normalise=st.none() | st.booleans()
    ),
    data=st.builds(DataConfig, train=st.lists(texts).map(tuple), passages=st.none() | texts),
    loss=st.builds(LossConfig, scale=numbers, local_weight=numbers | st.just(0), drpq_temperature=numbers),
    optimiser=st.builds(OptimiserConfig, learning_rate=numbers, schedule=st.sampled_from(["linear", "cosine"])),
)


@given(config=configs)
@settings(max_examples=60)
def test_settings_come_back_from_their_toml_and_from_their_dict_over_any_others(config, tmp_path_factory):
    path = tmp_path_factory.mktemp("toml") / "train.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    others = TrainConfig(encoder=EncoderConfig(lora_rank=3, document_length=9), data=DataConfig(train=("x",)))
    assert merge(others, read_toml(path), "file") == config
    assert TrainConfig.from_dict(config.as_dict()) == config


def test_a_fingerprint_follows_the_values_and_not_the_name_of_the_preset():
    base = TrainConfig()
    assert base.fingerprint() == TrainConfig(preset="mvr", budget="small").fingerprint()
    assert len(base.fingerprint()) == 64
    others = ["optimiser.seed=1", "loss.tau=.9", "data.train=a", "encoder.lora_rank=1", "warm_up_epochs=1"]
    found = {base.with_overrides([other]).fingerprint() for other in others} | {base.fingerprint()}
    assert len(found) == 6


def test_training_needs_a_file_to_train_on():
    with pytest.raises(ConfigError, match=r"data\.train: expected at least one file"):
        check_can_train(TrainConfig())
    check_can_train(TrainConfig(data=DataConfig(train=("a.jsonl",))))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["evaluation.scale=0.5"], "evaluation.scale: expected 1 without encoder.lora_rank, got 0.5"),
        (["evaluation.scale=none"], "evaluation.scale: expected 1 without encoder.lora_rank, got auto"),
        (["evaluation.scale=none", "encoder.lora_rank=2"], r"evaluation.scale: expected dev questions \(--dev\)"),
        (["evaluation.keep=a"], "evaluation.keep: expected --scale auto, which chooses a factor by these sets, got 1"),
    ],
)
def test_a_scale_needs_lora_and_its_choice_needs_dev_questions(overrides, message):
    config = TrainConfig().with_overrides(["data.train=a.jsonl", *overrides])
    with pytest.raises(ConfigError, match=message):
        check_can_train(config)


def test_settings_import_no_torch():
    code = "import sys, mvindex_train.config, mvindex_train.config_cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
