#include "checkpoint/fill.h"

#include <algorithm>
#include <cstring>

#include "tensor/context.h"
#include "tensor/error.h"
#include "tensor/ops/cast.h"

namespace penstock::checkpoint {
namespace {

constexpr std::int64_t kBlockElements = std::int64_t{1} << 18;

void require_castable(tensor::DType stored, tensor::DType wanted, Cast cast,
                      const std::string& where) {
  if (cast == Cast::kFloating && is_floating(stored) && is_floating(wanted)) return;
  throw FileError(where + " is stored as " + std::string(name_of(stored)) + "; expected " +
                  std::string(name_of(wanted)) +
                  (cast == Cast::kNo ? "; ask for a cast, or read it as it is stored"
                                     : "; only floating dtypes are converted"));
}

}  // namespace

void fill(const tensor::Tensor& destination, tensor::DType stored, Cast cast,
          const std::string& where, const ReadElements& read) {
  if (!destination.defined() || destination.device().type != tensor::DeviceType::kCpu) {
    throw tensor::InvalidArgument(
        where + ": expected a destination on cpu; got " +
        (destination.defined() ? destination.to_string() : "an undefined tensor"));
  }
  if (destination.dtype() == stored) {
    read(0, {destination.raw(), destination.nbytes()});
    return;
  }
  require_castable(stored, destination.dtype(), cast, where);
  tensor::Context context(tensor::make_cpu_allocator());
  std::byte* out = destination.raw();
  for (std::int64_t first = 0; first < destination.numel(); first += kBlockElements) {
    const std::int64_t count = std::min(kBlockElements, destination.numel() - first);
    const tensor::Tensor block = tensor::Tensor::empty(context, {count}, stored);
    read(first, {block.raw(), block.nbytes()});
    const tensor::Tensor converted = tensor::cast(context, block, destination.dtype());
    std::memcpy(out, converted.raw(), converted.nbytes());
    out += converted.nbytes();
  }
}

}  // namespace penstock::checkpoint
