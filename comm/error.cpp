#include "comm/error.h"

namespace penstock::comm {

std::string FailureCause::to_string() const {
  std::string where;
  const auto add = [&where](const std::string& part) {
    where += (where.empty() ? "" : ", ") + part;
  };
  if (stage >= 0) add("stage " + std::to_string(stage));
  if (!instruction.empty()) add(instruction);
  if (micro_batch >= 0) add("micro batch " + std::to_string(micro_batch));
  std::string text = rank >= 0 ? "rank " + std::to_string(rank) : "an unknown rank";
  if (!where.empty()) text += " (" + where + ")";
  return text + ": " + message;
}

}  // namespace penstock::comm
