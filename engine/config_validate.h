// Checks a document against the key table, and what keys say together. Reads nothing into a Config.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/json_value.h"

namespace penstock::engine {

// Throws ConfigError with every unknown key, wrong type and value out of range; if there is none,
// with every contradiction between keys; if there is none, with every key that this version
// refuses.
void validate_config(const JsonValue& root, std::string_view origin);

// "key: why" for each key of a valid document that has no effect, in the document's order.
std::vector<std::string> keys_without_effect(const JsonValue& root);

}  // namespace penstock::engine
