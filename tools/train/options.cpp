#include "tools/train/options.h"

#include <iostream>

#include <boost/program_options.hpp>

#include "tools/train/usage_error.h"

namespace penstock::tools {

namespace {

namespace po = boost::program_options;

constexpr const char* kIntroduction =
    R"(Trains a model by pipeline, data and tensor parallelism, as a configuration file says.

  penstock-train --config run.json --model gpt2:layers=4,width=128 --data text.txt --ranks 4
  mpirun -n 4 penstock-train --config run.json --model gpt2-folder --data text.txt
  penstock-train --config run.json --model … --data text.txt --ranks 2 --run run --resume
  penstock-train --config run.json --model alexnet --data data_batch_*.bin

The grid is pipeline.stages ranks along the pipe and tensor_parallel.size ranks for each layer; the
other ranks are replicas. The keys of the configuration are described in docs/config.md.

Exit status: 0; 2 if the command line is wrong; 1 for all else: the configuration, the model, files,
a rank that failed.
)";

po::options_description describe(TrainOptions& options) {
  po::options_description all("Options", 100);
  auto add = all.add_options();
  add("help,h", "print this and exit");
  add("config", po::value(&options.config)->value_name("FILE")->required(), "configuration, JSON");
  add("set", po::value(&options.overrides)->value_name("KEY=VALUE")->composing(),
      "override a key: --set optimizer.params.lr=3e-4; may be repeated");
  add("model", po::value(&options.model)->value_name("MODEL")->required(),
      "alexnet, for images; gpt2, gpt2-medium, gpt2-large, gpt2-xl or llama, with changes as in "
      "gpt2:layers=4,width=128,heads=4,context=128,vocabulary=256; or a folder with Hugging Face's "
      "config.json (GPT-2 or Llama) and, if there, model.safetensors or the files of its index, "
      "with changes as in FOLDER:dropout=0");
  add("data", po::value(&options.data.files)->value_name("FILE")->required()->multitoken(),
      "what to train on. For a gpt2 or llama: text, whose bytes are its tokens, or token files "
      "(.bin) of "
      "nanoGPT or llm.c; for alexnet: CIFAR-10's binary files, or MNIST's images "
      "(train-images-idx3-ubyte, with the labels beside them). Several files follow each other");
  add("data-format", po::value<std::string>()->value_name("FORMAT")->default_value("auto"),
      "text, nanogpt, llm.c, cifar10 or mnist, where the file's name or beginning says another");
  add("steps", po::value(&options.steps)->value_name("N")->default_value(options.steps),
      "optimizer steps, counted from the run's beginning");
  add("ranks", po::value<int>()->value_name("N"),
      "ranks, as threads of this process (default: one replica, pipeline.stages times "
      "tensor_parallel.size); not under mpirun");
  add("run", po::value(&options.run)->value_name("FOLDER")->default_value(options.run),
      "where losses.csv, trace.json and checkpoints/ go; an earlier run there is only gone on "
      "with, "
      "by --resume");
  add("resume", po::value<std::string>()->value_name("TAG")->implicit_value(""),
      "go on from a checkpoint of the run folder (default: the latest), on any grid");
  add("fresh-optimizer", po::bool_switch(&options.fresh_optimizer),
      "with --resume: all but the optimizer's states, which begin anew");
  add("save-every", po::value(&options.save_every)->value_name("N")->default_value(0),
      "save a checkpoint every N steps; one is always saved after the last");
  add("eval-data", po::value(&options.eval_data.files)->value_name("FILE")->multitoken(),
      "what to evaluate on, in the same format");
  add("eval-every", po::value(&options.eval_every)->value_name("N")->default_value(0),
      "evaluate every N steps; always after the last");
  add("eval-batches", po::value(&options.eval_batches)->value_name("N")->default_value(8),
      "micro batches per replica of an evaluation");
  add("trace-step", po::value(&options.trace_step)->value_name("N")->default_value(0),
      "the step to trace (default: the last)");
  add("export", po::value(&options.export_weights)->value_name("FOLDER"),
      "write the weights as model.safetensors with Hugging Face's names, and config.json");
  add("plan", po::bool_switch(&options.plan),
      "print how many bytes each rank would need, and train nothing; one process is enough for any "
      "grid");
  add("log-stages", po::value(&options.log.stages)->value_name("N")->multitoken(),
      "of the lines that ranks write, those of these stages alone");
  add("log-replicas", po::value(&options.log.data_indices)->value_name("N")->multitoken(),
      "likewise, of these replicas alone");
  add("verbose,v", po::bool_switch(&options.verbose), "log more");
  return all;
}

void require(bool fine, const char* what) {
  if (!fine) throw UsageError(what);
}

}  // namespace

std::optional<TrainOptions> parse_command_line(int argc, const char* const* argv) {
  TrainOptions options;
  const po::options_description all = describe(options);
  po::variables_map values;
  po::store(
      po::command_line_parser(argc, argv)
          .options(all)
          .positional({})
          // Options are written out: what is short for one today may be short for two tomorrow.
          .style(po::command_line_style::default_style & ~po::command_line_style::allow_guessing)
          .run(),
      values);
  if (values.contains("help")) {
    std::cout << kIntroduction << '\n' << all;
    return std::nullopt;
  }
  po::notify(values);
  if (values.contains("ranks")) options.ranks = values["ranks"].as<int>();
  if (values.contains("resume")) options.resume = values["resume"].as<std::string>();
  options.data.format = data_format(values["data-format"].as<std::string>());
  options.eval_data.format = options.data.format;
  require(!options.run.empty(), "--run needs a folder");
  require(options.steps >= 1, "--steps must be at least 1");
  require(!options.ranks || *options.ranks >= 1, "--ranks must be at least 1");
  require(options.resume || !options.fresh_optimizer,
          "--fresh-optimizer is for --resume; a new run's optimizer is fresh");
  require(options.save_every >= 0, "--save-every must not be negative");
  require(options.eval_every >= 0, "--eval-every must not be negative");
  require(options.eval_every == 0 || !options.eval_data.files.empty(),
          "--eval-every needs --eval-data");
  require(options.eval_batches >= 1, "--eval-batches must be at least 1");
  require(options.trace_step >= 0 && options.trace_step <= options.steps,
          "--trace-step must be between 1 and --steps");
  return options;
}

}  // namespace penstock::tools
