// Strict JSON in: duplicate keys, trailing text and deep nesting are errors with line and column.
#pragma once

#include <string_view>

#include "engine/json_value.h"

namespace penstock::engine {

// Parses one JSON document. `origin` (a file name, say) begins every message. Throws ConfigError.
JsonValue parse_json(std::string_view text, std::string_view origin);

}  // namespace penstock::engine
