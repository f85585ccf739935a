#include "tools/train/run_record.h"

#include <nlohmann/json.hpp>

#include "checkpoint/error.h"
#include "checkpoint/hash.h"

namespace penstock::tools {

namespace {

using nlohmann::json;

constexpr const char* kTrainer = "penstock-train";

}  // namespace

std::string TextFacts::to_string() const {
  return file + " (" + std::to_string(bytes) + " bytes, xxh3 " + checksum + ")";
}

TextFacts text_facts(const std::string& file, std::span<const std::uint8_t> text) {
  checkpoint::Checksum checksum;
  checksum.update(std::as_bytes(text));
  return {file, text.size(), checkpoint::to_hex(checksum.value())};
}

std::string to_client_state(const RunRecord& record) {
  const json state = {
      {"trainer", kTrainer},
      {"model", json::parse(model::gpt2_config_to_json(record.model))},
      {"data",
       {{"file", record.data.file}, {"bytes", record.data.bytes}, {"xxh3", record.data.checksum}}}};
  // A file's name need not be UTF-8.
  return state.dump(2, ' ', false, json::error_handler_t::replace);
}

std::optional<RunRecord> from_client_state(const std::string& text) {
  const json state = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!state.is_object() || state.value("trainer", json()) != kTrainer) return std::nullopt;
  try {
    const json& data = state.at("data");
    return RunRecord{model::gpt2_config_from_json(state.at("model").dump()),
                     {data.at("file").get<std::string>(), data.at("bytes").get<std::uint64_t>(),
                      data.at("xxh3").get<std::string>()}};
  } catch (const json::exception& error) {
    throw checkpoint::FileError(
        std::string("[train] the checkpoint's client state cannot be read: ") + error.what());
  }
}

}  // namespace penstock::tools
