#include "engine/config_file.h"

#include "checkpoint/error.h"
#include "checkpoint/file_system.h"
#include "engine/config_error.h"

namespace penstock::engine {

std::string read_config_file(const std::filesystem::path& path, const std::string& where,
                             const std::string& expected) {
  try {
    return checkpoint::read_text(checkpoint::posix_file_system(), path);
  } catch (const checkpoint::FileError& error) {
    throw ConfigError(where + error.what() + "; expected " + expected);
  }
}

}  // namespace penstock::engine
