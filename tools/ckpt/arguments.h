// What the commands of penstock-ckpt share: their options, and how they print.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "checkpoint/checkpoint.h"
#include "tools/ckpt/commands.h"

namespace penstock::tools {

namespace po = boost::program_options;

// The options of a command; `usage` and `about` head its help text.
class Arguments {
 public:
  Arguments(std::string usage, std::string about);

  // Takes one more word without an option's name. Optional ones come last.
  void word(const char* name, const char* what, bool required = true);
  po::options_description& options() { return options_; }
  // False when help was asked for, which is then printed. Throws for what cannot be read.
  bool parse(const Words& words);

  std::string text(const char* name) const { return values_[name].as<std::string>(); }
  std::optional<std::string> optional_text(const char* name) const;
  bool flag(const char* name) const { return values_.contains(name); }

 private:
  std::string usage_, about_;
  po::options_description options_{"Options"};
  po::options_description words_;
  po::positional_options_description order_;
  po::variables_map values_;
};

inline constexpr const char* kDirectory =
    "the directory that was given to the save, or the run folder of penstock-train";
// A run folder stands for the checkpoints in it.
std::filesystem::path directory_of_checkpoints(const std::filesystem::path& path);
// Opens DIR (its latest), or DIR/TAG.
checkpoint::Reader open_path(const std::filesystem::path& path);

std::string human_bytes(std::uint64_t bytes);          // "1.2 MB"
std::string utc(std::int64_t nanoseconds_since_1970);  // "2026-01-31 12:00:00"
// "f32 [4, 16]"
std::string described(const checkpoint::TensorInfo& info);
// Columns as wide as their widest cell; the first row is the heading.
std::string columns(const std::vector<std::vector<std::string>>& rows);

}  // namespace penstock::tools
