#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "tensor/error.h"

namespace penstock::checkpoint {
namespace {

constexpr std::size_t kMaxTagBytes = 200;

// At least two digits, so that names sort well for up to 100 of each.
std::string two_digits(const char* what, int index) {
  if (index < 0) {
    throw tensor::InvalidArgument(std::string("[checkpoint] ") + what + " " +
                                  std::to_string(index) + "; expected at least 0");
  }
  const std::string digits = std::to_string(index);
  return std::string(what) + "_" + (digits.size() < 2 ? "0" : "") + digits;
}

bool is_utf8(std::string_view text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace

std::string model_states_file(int layer, int model_index) {
  return two_digits("layer", layer) + "-" + two_digits("model", model_index) +
         "-model_states.safetensors";
}

std::string optim_states_file(int layer, int model_index, int data_index) {
  return two_digits("layer", layer) + "-" + two_digits("model", model_index) +
         (data_index < 0 ? "" : "-" + two_digits("data", data_index)) + "-optim_states.safetensors";
}

void validate_tag(std::string_view tag) {
  const auto fail = [&](const std::string& what) {
    throw tensor::InvalidArgument("[checkpoint] the tag \"" + std::string(tag) + "\" " + what +
                                  "; expected a name such as step100");
  };
  if (tag.empty()) fail("is empty");
  if (tag.size() > kMaxTagBytes) fail("has more than 200 bytes");
  if (tag.find_first_of("/\\") != std::string_view::npos) fail("holds a slash");
  if (tag.front() == '.' || tag.front() == ' ') fail("begins with '.' or a space");
  if (tag.back() == ' ') fail("ends with a space");
  for (const char c : tag) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) fail("holds a control character");
  }
  if (!is_utf8(tag)) fail("is not UTF-8");
  if (tag == kLatestFile) fail("is the name of the file beside the tags");
  if (tag.ends_with(kTemporarySuffix) || tag.ends_with(kOldSuffix)) {
    fail("ends with .tmp or .old, which name unfinished and replaced checkpoints");
  }
}

}  // namespace penstock::checkpoint
