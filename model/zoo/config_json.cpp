#include "model/zoo/config_json.h"

#include "tensor/error.h"

namespace penstock::model {

using nlohmann::json;

json parse_config_json(std::string_view text) {
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::parse_error& error) {
    throw tensor::InvalidArgument(std::string("[config.json] is not JSON: ") + error.what());
  }
  if (!parsed.is_object()) throw_key("the whole text", "an object", parsed.type_name());
  return parsed;
}

void throw_key(const std::string& key, const std::string& expected, const json& got) {
  throw tensor::InvalidArgument("[config.json] " + key + ": expected " + expected + ", got " +
                                got.dump());
}

std::int64_t required_size(const json& config, const std::string& key, const std::string& model) {
  if (!config.contains(key)) {
    throw tensor::InvalidArgument("[config.json] " + key + " is missing; " + model + " has it");
  }
  const json& value = config.at(key);
  if (!value.is_number_integer() || value < 1) throw_key(key, "a whole number above 0", value);
  return value.get<std::int64_t>();
}

std::int64_t optional_size(const json& config, const std::string& key, std::int64_t otherwise) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return otherwise;
  return required_size(config, key, "");
}

double optional_number(const json& config, const std::string& key, double otherwise) {
  const auto found = config.find(key);
  if (found == config.end()) return otherwise;
  if (!found->is_number()) throw_key(key, "a number", *found);
  return found->get<double>();
}

bool optional_flag(const json& config, const std::string& key, bool otherwise) {
  const auto found = config.find(key);
  if (found == config.end()) return otherwise;
  if (!found->is_boolean()) throw_key(key, "true or false", *found);
  return found->get<bool>();
}

void check_only(const json& config, const std::string& key, const json& supported) {
  const auto found = config.find(key);
  if (found == config.end() || *found == supported) return;
  throw tensor::Unsupported("[config.json] " + key + ": only " + supported.dump() +
                            " is supported, got " + found->dump());
}

void check_model_type(const json& config, const std::string& expected) {
  const auto type = config.find("model_type");
  if (type != config.end() && *type == expected) return;
  throw tensor::Unsupported("[config.json] model_type: expected \"" + expected + "\", got " +
                            (type == config.end() ? "none" : type->dump()));
}

}  // namespace penstock::model
