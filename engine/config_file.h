// How the configuration and the files that it names are read.
#pragma once

#include <filesystem>
#include <string>

namespace penstock::engine {

// The text of a file. Throws ConfigError unless it is one that can be read: `where`, why not, and
// that `expected` was expected.
std::string read_config_file(const std::filesystem::path& path, const std::string& where,
                             const std::string& expected);

}  // namespace penstock::engine
