// The data that --data and --eval-data name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/data_source.h"
#include "tools/train/model_choice.h"

namespace penstock::tools {

enum class DataFormat : std::uint8_t { kAuto, kText, kNanoGpt, kLlmC, kCifar10, kMnist };

// auto, text, nanogpt, llm.c, cifar10 or mnist. Throws UsageError for another word.
DataFormat data_format(const std::string& word);

struct DataChoice {
  std::vector<std::string> files;
  DataFormat format = DataFormat::kAuto;
};

// One pass over the files, as the model takes them. By itself (kAuto) a GPT-2 reads a file whose
// name ends with .bin as tokens (llm.c's, or nanoGPT's), another as text; AlexNet reads idx files
// as MNIST's, others as CIFAR-10's. Of MNIST, --data names the images; the labels lie beside them.
// Throws InvalidArgument for files that are not what the model takes.
std::unique_ptr<model::DataSource> open_data(const DataChoice& data, const ModelConfig& config,
                                             std::optional<std::uint64_t> shuffle_seed);

}  // namespace penstock::tools
