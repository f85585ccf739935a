// What is left of a device's memory, for messages of errors.
#pragma once

#include <string>

namespace penstock::tensor::cuda {

// Of the device that is the calling thread's: " on cuda:0, where 5 of 100 bytes are free".
std::string room_left();

}  // namespace penstock::tensor::cuda
