// A weight's name in a model here and in Hugging Face's files.
#pragma once

#include <string>

namespace penstock::model {

struct WeightName {
  std::string logical;
  std::string hugging_face;
};

}  // namespace penstock::model
