// Which features of a configuration go together: docs/combinations.md, made by asking the parser
// about each pair.
#pragma once

#include <string>

namespace penstock::engine {

// The whole page. `penstock-config-doc --combinations > docs/combinations.md` writes it; a test
// compares the two.
std::string combinations_markdown();

}  // namespace penstock::engine
