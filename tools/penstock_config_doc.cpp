// Prints docs/config.md, made from the key table: penstock-config-doc > docs/config.md
#include <iostream>

#include "engine/config_doc.h"

int main() {
  std::cout << penstock::engine::config_reference_markdown() << std::flush;
  return std::cout ? 0 : 1;
}
