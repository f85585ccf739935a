// What a configuration says once it is accepted.
#include "config_support.h"

namespace penstock::engine {
namespace {

using test::config_error;

TEST(Config, ReadsEveryPart) {
  const Config config = parse_config(R"({
    "train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4,
    "gradient_clipping": 0.5, "non_finite_gradients": "stop", "seed": 7, "steps_per_print": 10,
    "threads_per_rank": 2, "frozen_parameters": ["^0\\."],
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": [1, 2], "warmup_type": "Linear"}},
    "optimizer": {"type": "SGD", "groups": [{"match": "bias$"}]},
    "pipeline": {"stages": 2, "partition": "Type:Linear"},
    "communication": {"backend": "MPI", "timeout_seconds": 60},
    "checkpoint": {"keep_last": 3}})",
                                     "test.json");
  EXPECT_EQ(config.batch, (BatchConfig{32, 4, 4}));
  EXPECT_EQ(config.gradient_clipping, 0.5);
  EXPECT_EQ(config.non_finite_gradients, NonFiniteGradients::kStop);
  EXPECT_EQ(config.seed, 7u);
  EXPECT_EQ(config.steps_per_print, 10);
  EXPECT_EQ(config.threads_per_rank, 2);
  EXPECT_EQ(config.frozen_parameters, std::vector<std::string>{"^0\\."});
  WarmupLrConfig warmup;
  warmup.max_lr = std::vector<double>{1, 2};
  warmup.type = WarmupType::kLinear;
  EXPECT_EQ(std::get<WarmupLrConfig>(config.scheduler), warmup);
  EXPECT_EQ(config.pipeline.stages, 2);
  EXPECT_EQ(config.pipeline.partition, "type:Linear") << "the pattern keeps its case";
  EXPECT_EQ(config.communication, (CommunicationConfig{CommunicationBackend::kMpi, 60.0}));
  EXPECT_EQ(config.checkpoint.keep_last, 3);
  EXPECT_TRUE(config.without_effect.empty());
}

TEST(Config, GroupsTakeTheRestFromParams) {
  const Config config = parse_config(R"({"optimizer": {"type": "adamw",
      "params": {"lr": 3e-4, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1,
                 "bias_correction": false},
      "groups": [{"match": "bias$", "weight_decay": 0, "betas": [0.7, 0.9]},
                 {"match": "^3", "lr": 1}]}})",
                                     "test.json");
  model::OptimizerOptions options;
  options.lr = 3e-4;
  options.weight_decay = 0.1;
  options.beta1 = 0.8;
  options.beta2 = 0.95;
  options.eps = 1e-6;
  options.bias_correction = false;
  ASSERT_TRUE(config.optimizer);
  EXPECT_EQ(config.optimizer->kind, model::OptimizerKind::kAdam);
  EXPECT_EQ(config.optimizer->options, options);
  ASSERT_EQ(config.optimizer->groups.size(), 2u);
  EXPECT_EQ(config.optimizer->groups[0].match, "bias$");
  EXPECT_EQ(config.optimizer->groups[1].match, "^3");
  EXPECT_EQ(config.optimizer->group_lrs(), (std::vector<double>{3e-4, 1.0, 3e-4}));
  options.weight_decay = 0;
  options.beta1 = 0.7;
  options.beta2 = 0.9;
  EXPECT_EQ(config.optimizer->groups[0].options, options);
}

TEST(Config, LambAndLionHaveDeepSpeedsParameters) {
  const auto optimizer = [](const std::string& text) {
    return *parse_config("{\"optimizer\": " + text + "}", "test.json").optimizer;
  };
  const OptimizerConfig lamb =
      optimizer(R"({"type": "lamb", "params": {"max_coeff": 0.3, "min_coeff": 0.02}})");
  EXPECT_EQ(lamb.kind, model::OptimizerKind::kLamb);
  EXPECT_EQ(lamb.options.max_coeff, 0.3);
  EXPECT_EQ(lamb.options.min_coeff, 0.02);
  EXPECT_EQ(lamb.options.beta2, 0.999);
  EXPECT_EQ(optimizer(R"({"type": "Lion"})").kind, model::OptimizerKind::kLion);
  EXPECT_EQ(optimizer(R"({"type": "Lion"})").options.beta2, 0.99);
  EXPECT_EQ(optimizer(R"({"type": "Lion", "params": {"betas": [0.5, 0.6]}})").options.beta2, 0.6);
  EXPECT_TRUE(optimizer(R"({"type": "SGD", "params": {"momentum": 0.9, "nesterov": true}})")
                  .options.nesterov);
}

TEST(Config, EmptyObjectGivesTheDefaults) {
  Config config = parse_config("{}", "test.json");
  config.canonical_text.clear();
  EXPECT_EQ(config, Config());
  EXPECT_FALSE(config.optimizer);
  EXPECT_EQ(config.gradient_clipping, 1.0);
  EXPECT_EQ(config.seed, 1234u);
}

TEST(Config, AdamDecouplesDecayUnlessToldOtherwise) {
  const auto mode = [](const std::string& optimizer) {
    return parse_config("{\"optimizer\": " + optimizer + "}", "a").optimizer->options.adam_w_mode;
  };
  EXPECT_TRUE(mode(R"({"type": "Adam"})"));
  EXPECT_TRUE(mode(R"({"type": "AdamW"})"));
  EXPECT_FALSE(mode(R"({"type": "ADAM", "params": {"adam_w_mode": false}})"));
}

TEST(Config, BoundsAreRead) {
  const Config config = parse_config(R"({"pipeline": {"stages": 2, "bounds": [0, 3, 6]}})", "a");
  EXPECT_EQ(config.pipeline.bounds, (std::vector<std::int64_t>{0, 3, 6}));
}

TEST(Config, SwitchedOffSectionsAreAcceptedAndHintsListed) {
  const Config config = parse_config(R"({
    "fp16": {"enabled": false, "loss_scale": 0, "initial_scale_power": "auto"},
    "bf16": {"enabled": "auto"}, "wandb": {"enabled": false, "team": "x"}, "comet": {},
    "zero_optimization": {"stage": 0, "reduce_bucket_size": 5e8,
                          "offload_param": {"device": "none"}, "offload_optimizer": null},
    "communication_data_type": "FP32", "steps_per_print": null, "pipeline": {"stages": "auto"}})",
                                     "test.json");
  EXPECT_FALSE(config.steps_per_print);
  EXPECT_EQ(config.pipeline.stages, 1);
  const std::vector<std::string> notes = {
      "fp16.loss_scale: belongs to fp16, which is off",
      "fp16.initial_scale_power: belongs to fp16, which is off",
      "zero_optimization.reduce_bucket_size: a stage's gradients and weights are each one piece"};
  EXPECT_EQ(config.without_effect, notes);
}

TEST(Config, OneCycleSaysThatSgdHasNoBetas) {
  const std::string text = R"({"optimizer": {"type": "SGD"}, "scheduler": {"type": "OneCycle",
      "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1)";
  const std::vector<std::string> note = {"scheduler.params.cycle_momentum: SGD has no betas"};
  EXPECT_EQ(parse_config(text + "}}}", "a").without_effect, note);
  EXPECT_TRUE(parse_config(text + ", \"cycle_momentum\": false}}}", "a").without_effect.empty());
}

TEST(Config, CanonicalTextIsTheDocumentAfterOverrides) {
  const std::vector<std::string> overrides = {"optimizer.params.lr=0.5"};
  const Config config =
      parse_config(R"({"seed": 1, "optimizer": {"type": "SGD"}})", "a", overrides);
  EXPECT_EQ(config.canonical_text, R"({"optimizer":{"params":{"lr":0.5},"type":"SGD"},"seed":1})");
}

}  // namespace
}  // namespace penstock::engine
