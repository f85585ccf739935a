// Prints pages that are made from the code:
//   penstock-config-doc > docs/config.md
//   penstock-config-doc --combinations > docs/combinations.md
#include <iostream>
#include <string_view>

#include "engine/combinations.h"
#include "engine/config_doc.h"

int main(int argc, char** argv) {
  const std::string_view option = argc > 1 ? argv[1] : "";
  if (argc > 2 || (!option.empty() && option != "--combinations")) {
    std::cerr << "usage: penstock-config-doc [--combinations]\n";
    return 1;
  }
  std::cout << (option.empty() ? penstock::engine::config_reference_markdown()
                               : penstock::engine::combinations_markdown())
            << std::flush;
  return std::cout ? 0 : 1;
}
