// docs/config.md, made from the key table.
#pragma once

#include <string>

namespace penstock::engine {

// The whole page. `penstock-config-doc > docs/config.md` writes it; a test compares the two.
std::string config_reference_markdown();

}  // namespace penstock::engine
