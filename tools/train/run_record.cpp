#include "tools/train/run_record.h"

#include <algorithm>
#include <span>

#include <nlohmann/json.hpp>

#include "checkpoint/error.h"
#include "checkpoint/hash.h"
#include "model/data/ranged_file.h"

namespace penstock::tools {

namespace {

using nlohmann::json;

constexpr const char* kTrainer = "penstock-train";
constexpr const char* kAlexNet = "alexnet";  // its model_type; a GPT-2's is Hugging Face's

void add_range(checkpoint::Checksum& checksum, const model::RangedFile& file, std::int64_t begin,
               std::int64_t end) {
  constexpr std::int64_t kPiece = 1 << 20;
  std::vector<std::uint8_t> piece;
  for (; begin < end; begin += kPiece) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, end - begin)));
    file.read(begin, piece);
    checksum.update(std::as_bytes(std::span(piece)));
  }
}

ModelConfig model_from_json(const json& model) {
  if (model.value("model_type", "") != kAlexNet) {
    const std::string text = model.dump();
    if (model::is_llama_config(text)) return model::llama_config_from_json(text);
    return model::gpt2_config_from_json(text);
  }
  return model::AlexNetConfig{model.at("num_classes").get<std::int64_t>()};
}

}  // namespace

std::string DataFacts::to_string() const {
  return files + " (" + std::to_string(bytes) + " bytes, xxh3 " + checksum + ")";
}

DataFacts data_facts(const std::vector<std::string>& files) {
  constexpr std::int64_t kWhole = 64 << 20, kEnd = 1 << 20;
  DataFacts facts;
  checkpoint::Checksum checksum;
  for (const std::string& name : files) {
    const model::RangedFile file(name);
    facts.files += (facts.files.empty() ? "" : " ") + name;
    facts.bytes += static_cast<std::uint64_t>(file.size());
    const std::int64_t head = file.size() <= kWhole ? file.size() : kEnd;
    add_range(checksum, file, 0, head);
    add_range(checksum, file, std::max(head, file.size() - kEnd), file.size());
  }
  facts.checksum = checkpoint::to_hex(checksum.value());
  return facts;
}

std::string model_text(const ModelConfig& config) {
  if (const auto* gpt2 = std::get_if<model::Gpt2Config>(&config)) {
    return model::gpt2_config_to_json(*gpt2);
  }
  if (const auto* llama = std::get_if<model::LlamaConfig>(&config)) {
    return model::llama_config_to_json(*llama);
  }
  const auto& alexnet = std::get<model::AlexNetConfig>(config);
  return json{{"model_type", kAlexNet}, {"num_classes", alexnet.num_classes}}.dump(2);
}

bool same_model(const ModelConfig& a, const ModelConfig& b) {
  const auto* other = std::get_if<model::Gpt2Config>(&b);
  if (other == nullptr || !std::holds_alternative<model::Gpt2Config>(a)) return a == b;
  auto gpt2 = std::get<model::Gpt2Config>(a);
  gpt2.dropout = other->dropout;  // may change on the way
  gpt2.attention_dropout = other->attention_dropout;
  return gpt2 == *other;
}

std::string to_client_state(const RunRecord& record) {
  const json state = {{"trainer", kTrainer},
                      {"model", json::parse(model_text(record.model))},
                      {"data",
                       {{"file", record.data.files},
                        {"bytes", record.data.bytes},
                        {"xxh3", record.data.checksum}}}};
  // A file's name need not be UTF-8.
  return state.dump(2, ' ', false, json::error_handler_t::replace);
}

std::optional<RunRecord> from_client_state(const std::string& text) {
  const json state = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!state.is_object() || state.value("trainer", json()) != kTrainer) return std::nullopt;
  try {
    const json& data = state.at("data");
    return RunRecord{model_from_json(state.at("model")),
                     {data.at("file").get<std::string>(), data.at("bytes").get<std::uint64_t>(),
                      data.at("xxh3").get<std::string>()}};
  } catch (const json::exception& error) {
    throw checkpoint::FileError(
        std::string("[train] the checkpoint's client state cannot be read: ") + error.what());
  }
}

}  // namespace penstock::tools
