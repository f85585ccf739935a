// How a configuration is refused: the wrong files that users met, and their relatives.
#include <filesystem>

#include "config_support.h"

namespace penstock::engine {
namespace {

using test::config_error;
using test::has;

// The configuration {"optimizer": {"type": "SGD"}, "scheduler": …}.
std::string scheduler_error(const std::string& scheduler) {
  return config_error(R"({"optimizer": {"type": "SGD"}, "scheduler": )" + scheduler + "}");
}

TEST(ConfigFaults, MisspeltKeyIsAnErrorThatNamesTheNearest) {
  EXPECT_HAS(config_error("{\n\"gradient_clipp1ng\": 1.0}"),
             "test.json, line 2: gradient_clipp1ng: unknown key; did you mean gradient_clipping?");
  EXPECT_HAS(config_error(R"({"grandient_accumulation_steps": 1})"),
             "did you mean gradient_accumulation_steps?");
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "SGD", "params": {"momentun": 1}}})"),
             "optimizer.params.momentun: unknown key; did you mean optimizer.params.momentum?");
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "SGD", "groups": [{"match": "a"},
                             {"match": "b", "weight_dacay": 1}]}})"),
             "optimizer.groups[1].weight_dacay: unknown key; did you mean "
             "optimizer.groups[1].weight_decay?");
  EXPECT_HAS(config_error(R"({"momentum": 0.9})"), "did you mean optimizer.params.momentum?");
  EXPECT_HAS(config_error(R"({"zzzzzzzzzzzz": 1})"), "docs/config.md lists all keys");
  EXPECT_HAS(config_error(R"({"pipelin": {"stages": 2}})"), "did you mean pipeline?");
}

TEST(ConfigFaults, KeyOfAnotherTypeIsNamedAsSuch) {
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "Adam", "params": {"momentum": 0.9}}})"),
             "optimizer.params.momentum: a key of SGD, not of Adam");
  EXPECT_HAS(scheduler_error(R"({"type": "WarmupLR", "params": {"cycle_min_lr": 1}})"),
             "scheduler.params.cycle_min_lr: a key of OneCycle, not of WarmupLR");
}

TEST(ConfigFaults, DottedNamesAreNotPaths) {
  EXPECT_HAS(config_error(R"({"optimizer.params.lr": 1})"), "sections are nested objects");
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "SGD", "groups[]": {"match": "a"}}})"),
             "unknown key");
  EXPECT_HAS(config_error(R"({"": 1})"), "unknown key");
}

TEST(ConfigFaults, QuotedBooleanIsATypeError) {
  EXPECT_HAS(config_error(R"({"bf16": {"enabled": "true"}})"),
             "bf16.enabled: expected bool or \"auto\", got the string \"true\"; write true without "
             "quotes");
  EXPECT_HAS(config_error(R"({"bfloat16": {"enabled": "no"}})"),
             "bfloat16.enabled: expected bool or \"auto\", got the string \"no\"");
}

TEST(ConfigFaults, BothHalfPrecisionsContradict) {
  EXPECT_HAS(config_error("{\"fp16\": {\"enabled\": true},\n \"bf16\": {\"enabled\": true}}"),
             "fp16.enabled: true, and so is bf16.enabled");
  EXPECT_HAS(config_error(R"({"fp16": {"enabled": true}, "bfloat16": {"enabled": true}})"),
             "and so is bfloat16.enabled");
  EXPECT_HAS(config_error(R"({"bf16": {}, "bfloat16": {}})"), "keep one of bf16 and bfloat16");
}

TEST(ConfigFaults, DecayOfAdamWCannotBeCoupled) {
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}}})"),
             "optimizer.params.adam_w_mode: false contradicts optimizer.type AdamW");
}

TEST(ConfigFaults, DuplicateKeyIsAnError) {
  EXPECT_HAS(config_error("{\"gradient_clipping\": 1.0,\n\"gradient_clipping\": 2.0}"),
             "test.json, line 2, column 19: duplicate key \"gradient_clipping\"");
}

TEST(ConfigFaults, RangesAreStated) {
  EXPECT_HAS(config_error(R"({"gradient_clipping": -1})"),
             "gradient_clipping: expected ≥ 0, got -1");
  EXPECT_HAS(config_error(R"({"steps_per_print": 0})"), "steps_per_print: expected ≥ 1, got 0");
  EXPECT_HAS(config_error(R"({"zero_optimization": {"stage": 3}})"),
             "zero_optimization.stage: 3 shares out the weights");
  EXPECT_HAS(config_error(R"({"fp16": {"enabled": true, "min_loss_scale": 1e30}})"),
             "fp16.min_loss_scale: is above the scale that a run begins with");
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "Lamb", "params": {"max_coeff": 0.001}}})"),
             "optimizer.params.min_coeff: is above max_coeff");
  EXPECT_HAS(config_error(R"({"communication": {"timeout_seconds": 0}})"), "expected > 0, got 0");
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9, 1]}}})"),
             "optimizer.params.betas: expected 2 values, each from 0 to below 1, got [0.9,1]");
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}})"),
             "expected 2 values");
  EXPECT_HAS(config_error(R"({"seed": 9223372036854775808})"), "seed: expected int");
  // JSON has no such numbers, so leaving the quotes out would not help.
  EXPECT_EQ(config_error(R"({"gradient_clipping": "nan"})").find("without quotes"),
            std::string::npos);
}

TEST(ConfigFaults, BatchKeysAreWholePositiveNumbers) {
  for (const std::string key :
       {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    for (const std::string value : {"0", "-4"}) {
      EXPECT_HAS(config_error("{\"" + key + "\": " + value + "}"),
                 key + ": expected ≥ 1, got " + value);
    }
    EXPECT_HAS(config_error("{\"" + key + "\": 4.5}"), key + ": expected int, got 4.5");
    EXPECT_HAS(config_error("{\"" + key + "\": \"4\"}"),
               key + ": expected int, got the string \"4\"; write 4 without quotes");
  }
}

TEST(ConfigFaults, FileFaultsNameThePath) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "penstock_config_faults";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
    return folder / name;
  };
  const auto load_error = [](const std::filesystem::path& path) {
    return test::error_of([&] { load_config_file(path); });
  };
  const auto trailing = write("trailing.json", "{\"seed\": 1}\nseed");
  EXPECT_HAS(load_error(trailing), trailing.string() + ", line 2, column 1: JSON syntax error");
  const auto empty = write("empty.json", "");
  EXPECT_HAS(load_error(empty), empty.string() + ", line 1: the text is empty");
  EXPECT_HAS(load_error(folder / "missing.json"),
             "[" + (folder / "missing.json").string() + "] cannot open: No such file");
  EXPECT_HAS(load_error(folder),
             "] is a directory; expected a file; expected a JSON configuration");
  const auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_HAS(load_error(pipe), "[" + pipe.string() + "] is neither a file nor a directory");
  EXPECT_EQ(load_config_file(write("good.json", "{\"seed\": 5}")).seed, 5u);
  std::filesystem::remove_all(folder);
}

TEST(ConfigFaults, AllFaultsAreReportedAtOnce) {
  const std::string message =
      config_error("{\"seed\": \"1\",\n\"sed\": 1,\n\"gradient_clipping\": -1}");
  EXPECT_HAS(message, "[config] 3 faults");
  EXPECT_HAS(message, "test.json, line 1: seed: expected int, got the string \"1\"");
  EXPECT_HAS(message, "test.json, line 2: sed: unknown key; did you mean seed?");
  EXPECT_HAS(message, "test.json, line 3: gradient_clipping");
}

TEST(ConfigFaults, RootAndSectionsAreObjects) {
  EXPECT_HAS(config_error("[1]"), "expected an object, got [1]");
  EXPECT_HAS(config_error("null"), "expected an object, got null");
  EXPECT_HAS(config_error(R"({"pipeline": 2})"), "pipeline: expected an object, got 2");
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "SGD", "params": []}})"),
             "optimizer.params: expected an object");
}

TEST(ConfigFaults, RequiredKeysAreNamed) {
  EXPECT_HAS(config_error(R"({"optimizer": {"params": {"lr": 1}}})"),
             "optimizer.type: required, but not given");
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "SGD", "groups": [{"lr": 1}]}})"),
             "optimizer.groups[0].match: required, but not given");
  EXPECT_HAS(scheduler_error(R"({"type": "WarmupDecayLR"})"),
             "scheduler.params.total_num_steps: required by WarmupDecayLR, but not given");
  const std::string cycle = scheduler_error(R"({"type": "OneCycle", "params": {}})");
  EXPECT_HAS(cycle, "scheduler.params.cycle_min_lr: required by OneCycle");
  EXPECT_HAS(cycle, "scheduler.params.cycle_max_lr: required by OneCycle");
  EXPECT_FALSE(has(cycle, "total_num_steps"));
  EXPECT_FALSE(has(scheduler_error(R"({"params": {}})"), "required by"));
}

TEST(ConfigFaults, AbsentChoicesAreToldFromUnknownOnes) {
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "Muon"}})"),
             "optimizer.type: the string \"Muon\" is not available in this version; expected SGD, "
             "Adam, AdamW, Lamb or Lion");
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "Adamm"}})"), "did you mean Adam?");
  EXPECT_HAS(
      config_error(R"({"optimizer": {"type": "Lamb", "params": {"eps_inside_sqrt": true}}})"),
      "optimizer.params.eps_inside_sqrt: true is not available");
  EXPECT_HAS(scheduler_error(R"({"type": "StepLR"})"),
             "scheduler.type: the string \"StepLR\" is not available");
  EXPECT_HAS(scheduler_error(R"({"type": "WarmupLR", "params": {"warmup_type": "cosine"}})"),
             "scheduler.params.warmup_type: expected log or linear, got \"cosine\"");
  EXPECT_HAS(config_error(R"({"communication": {"backend": "nccl"}})"),
             "communication.backend: the string \"nccl\" is not available in this version");
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "SGD", "params": {"max_grad_norm": 1}}})"),
             "use gradient_clipping");
}

TEST(ConfigFaults, ScheduleIsOneThatTrains) {
  EXPECT_EQ(parse_config(R"({"pipeline": {"schedule": "1F1B"}})", "test").pipeline.schedule,
            "1f1b");
  EXPECT_HAS(config_error(R"({"pipeline": {"schedule": "1f1"}})"), "did you mean 1f1b?");
  EXPECT_HAS(config_error(R"({"pipeline": {"schedule": "inference"}})"),
             "pipeline.schedule: expected 1f1b");
  EXPECT_HAS(config_error(R"({"pipeline": {"cost_file": "costs.json"}})"),
             "pipeline.cost_file: has a meaning only with pipeline.schedule \"auto\"");
  EXPECT_HAS(config_error(R"({"pipeline": {"schedule": "1f1b", "memory_limit": 5}})"),
             "pipeline.memory_limit: has a meaning only with pipeline.schedule \"auto\"");
}

TEST(ConfigFaults, StageMapFitsTheRanks) {
  const auto section = [](const std::string& pipeline) {
    return R"({"pipeline": {)" + pipeline + "}}";
  };
  const auto error = [&](const std::string& pipeline) { return config_error(section(pipeline)); };
  const auto parsed = [&](const std::string& pipeline) {
    return parse_config(section(pipeline), "test").pipeline;
  };
  EXPECT_EQ(parsed(R"("stages": 2, "chunks": 2, "stage_map": "V")").stage_map, "v");
  EXPECT_EQ(parsed(R"("stages": 2, "stage_map": [0, 1, 0])").stage_owners.size(), 3u);
  EXPECT_HAS(error(R"("stages": 2, "stage_map": "ring")"),
             "pipeline.stage_map: expected loop or v, got \"ring\"");
  EXPECT_HAS(error(R"("stages": 3, "stage_map": [0, 1, 1, 0])"),
             "with every rank from 0 to 2 (pipeline.stages is 3), got [0,1,1,0]");
  EXPECT_HAS(error(R"("stages": 2, "stage_map": [0, 0])"), "with every rank from 0 to 1");
  EXPECT_HAS(error(R"("stages": 1, "stage_map": [])"), "with every rank from 0 to 0");
  EXPECT_HAS(error(R"("stages": 2, "chunks": 2, "stage_map": [0, 1, 1, 0])"),
             "pipeline.chunks: 2 is given together with a list of owners");
  // Bounds cut into all stages.
  EXPECT_EQ(parsed(R"("stages": 2, "chunks": 2, "bounds": [0, 1, 2, 3, 4])").bounds.size(), 5u);
  EXPECT_HAS(error(R"("stages": 2, "chunks": 2, "bounds": [0, 1, 2])"),
             "makes 2 stages, but pipeline.stages is 2 and pipeline.chunks is 2");
  EXPECT_HAS(error(R"("stages": 2, "stage_map": [0, 1, 0], "bounds": [0, 1, 2])"),
             "makes 2 stages, but pipeline.stage_map has 3");
}

TEST(ConfigFaults, SwitchedOnSectionsAreRefused) {
  EXPECT_HAS(config_error(R"({"bf16": {"bf16_optimizer_states": true}})"),
             "bf16.bf16_optimizer_states: true is not available");
  EXPECT_HAS(config_error(R"({"wandb": {"enabled": true}})"),
             "wandb: this section is not available");
  EXPECT_HAS(config_error(R"({"wandb": {"team": "x"}})"), "set its \"enabled\" to false");
  EXPECT_HAS(config_error(R"({"zero_optimization": {"offload_param": {"device": "cpu"}}})"),
             "zero_optimization.offload_param: this section is not available");
}

TEST(ConfigFaults, OptionsOfDevicesNeedDevices) {
  for (const char* option :
       {R"("sharing": true)", R"("tf32": true)", R"("graphs": true)", R"("transport": "staged")"}) {
    const std::string text = R"({"device": {)" + std::string(option);
    EXPECT_HAS(config_error(text + "}}"), "but device.type is \"cpu\", its default; remove it");
    EXPECT_HAS(config_error(text + R"(, "type": "cpu"}})"),
               "but device.type is \"cpu\"; remove it");
    EXPECT_NO_THROW(parse_config(text + R"(, "type": "cuda"}})", "test"));
  }
  EXPECT_NO_THROW(parse_config(R"({"device": {"sharing": false, "transport": "auto"}})", "test"));
}

TEST(ConfigFaults, GraphsNeedPassesThatOnlyCompute) {
  const std::string graphs = R"({"device": {"type": "cuda", "graphs": true}, )";
  EXPECT_HAS(config_error(graphs + R"("tensor_parallel": {"size": 2}})"),
             "device.graphs: true, but tensor_parallel.size is 2");
  EXPECT_HAS(config_error(graphs + R"("zero_optimization": {"stage": 2}})"),
             "device.graphs: true, but zero_optimization.stage is 2");
  EXPECT_NO_THROW(parse_config(graphs + R"("tensor_parallel": {"size": 1},
                               "zero_optimization": {"stage": 1}})",
                               "test"));
}

TEST(ConfigFaults, NesterovNeedsAMomentumWithoutDampeningInEachGroup) {
  const auto error = [](const std::string& more) {
    return config_error(R"({"optimizer": {"type": "SGD", "params": {"nesterov": true)" + more +
                        "}}");
  };
  const std::string fact = "optimizer.params.nesterov: true needs a momentum above 0";
  EXPECT_HAS(error("}"), fact);
  EXPECT_HAS(error(R"(, "momentum": 0.9, "dampening": 0.1})"), fact);
  EXPECT_HAS(
      error(R"(, "momentum": 0.9}, "groups": [{"match": "b"}, {"match": "x", "momentum": 0}])"),
      "in optimizer.groups[1]");
}

TEST(ConfigFaults, DtypesMustFitThePrecision) {
  EXPECT_HAS(config_error(R"({"data_types": {"grad_accum_dtype": "bf16"}})"),
             "data_types.grad_accum_dtype: bf16, but the weights are fp32");
  EXPECT_HAS(
      config_error(R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "half"}})"),
      "data_types.grad_accum_dtype: fp16, but the weights are bf16");
  EXPECT_HAS(config_error(R"({"fp16": {"enabled": true}, "data_types": {"param_dtype": "fp32"}})"),
             "data_types.param_dtype: fp32, but the weights are fp16");
  EXPECT_HAS(config_error(R"({"zero_optimization": {"reduce_each_micro_batch": true}})"),
             "expected stage 2, whose gradients are shared out");
}

TEST(ConfigFaults, SchedulerNeedsItsOptimizerAndFittingLists) {
  EXPECT_HAS(config_error(R"({"scheduler": {"type": "WarmupLR"}})"),
             "scheduler: needs an optimizer section");
  EXPECT_HAS(scheduler_error(R"({"type": "WarmupLR", "params": {"warmup_min_lr": [1, 2]}})"),
             "scheduler.params.warmup_min_lr: expected one value per parameter group (1");
  EXPECT_HAS(scheduler_error(R"({"type": "WarmupCosineLR", "params": {"total_num_steps": 20}})"),
             "20 is less than warmup_num_steps 1000 (its default)");
}

TEST(ConfigFaults, PartitionAndBoundsAreChecked) {
  const auto error = [](const std::string& pipeline) {
    return config_error("{\"pipeline\": {" + pipeline + "}}");
  };
  EXPECT_HAS(error(R"("partition": "type:(")"),
             "pipeline.partition: \"(\" is not a regular expression");
  EXPECT_HAS(error(R"("partition": "type:")"), "expected a regular expression after");
  EXPECT_HAS(error(R"("partition": "typo")"),
             "expected best, uniform, parameters or type:REGEX, got \"typo\"");
  EXPECT_HAS(error(R"("partition": "profile")"), "\"profile\" is not available");
  EXPECT_HAS(error(R"("stages": 2, "bounds": [0, 3])"),
             "[0,3] makes 1 stages, but pipeline.stages is 2");
  EXPECT_HAS(error(R"("bounds": [0, 3, 6])"), "pipeline.stages is 1 (its default)");
  EXPECT_HAS(error(R"("stages": 2, "bounds": [0, 3, 3])"), "expected rising layer numbers");
  EXPECT_HAS(error(R"("stages": 2, "bounds": [1, 3, 4])"), "expected rising layer numbers");
  EXPECT_HAS(error(R"("stages": 1, "bounds": [])"), "expected rising layer numbers");
  EXPECT_HAS(error(R"("stages": 1, "bounds": [0, 4], "partition": "uniform")"),
             "given together with pipeline.partition \"uniform\"");
}

TEST(ConfigFaults, PatternsMustCompile) {
  EXPECT_HAS(config_error(R"({"frozen_parameters": ["ok", "["]})"),
             "frozen_parameters: the string \"[\" is not a regular expression");
  EXPECT_HAS(config_error(R"({"optimizer": {"type": "SGD", "groups": [{"match": "*"}]}})"),
             "optimizer.groups[0].match: the string \"*\" is not a regular expression");
  const std::string deep(2000, '(');
  EXPECT_HAS(config_error("{\"frozen_parameters\": [\"" + deep + "\"]}"),
             "at most 1000 characters");
}

}  // namespace
}  // namespace penstock::engine
