// Reads the keys of a Hugging Face config.json; for the zoo's .cpp files. Messages name the key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace penstock::model {

// The whole text, an object; InvalidArgument otherwise.
nlohmann::json parse_config_json(std::string_view text);

[[noreturn]] void throw_key(const std::string& key, const std::string& expected,
                            const nlohmann::json& got);

// A whole number above 0. `model` is what has the key: "a GPT-2 config".
std::int64_t required_size(const nlohmann::json& config, const std::string& key,
                           const std::string& model);
// The same where the key may be absent or null.
std::int64_t optional_size(const nlohmann::json& config, const std::string& key,
                           std::int64_t otherwise);
double optional_number(const nlohmann::json& config, const std::string& key, double otherwise);
bool optional_flag(const nlohmann::json& config, const std::string& key, bool otherwise);

// Throws Unsupported unless the key has the one value that the model here computes with, which is
// also what an absent key means.
void check_only(const nlohmann::json& config, const std::string& key,
                const nlohmann::json& supported);
// Throws Unsupported unless model_type is this.
void check_model_type(const nlohmann::json& config, const std::string& expected);

}  // namespace penstock::model
