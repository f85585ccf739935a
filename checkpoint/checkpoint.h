// Saving and loading the state of a run: save() commits a checkpoint atomically over all ranks,
// Reader finds one, checks every byte of it, and gives its tensors to any other grid.
//
// The format and the commit order are in docs/checkpoint-format.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/region.h"
#include "tensor/tensor.h"

namespace penstock::comm {
class World;
}

namespace penstock::checkpoint {

// Part of a logical tensor that one rank stores. A logical tensor is named as the model names it,
// for the whole run: global layer indices, no padding, no flat buffers. The pieces of all ranks
// must tile it: equal dtype, one common axis, slices that fill the axis, element ranges that fill
// each slice, nothing twice. (So exactly one of the ranks that hold the same elements, and one of
// the users of a tied weight, gives them.) A piece without elements, of a tensor that has some, is
// allowed and left out.
struct Piece {
  std::string name;
  tensor::Shape shape;  // of the logical tensor
  Region region;        // which of its elements `data` holds
  tensor::Tensor data;  // cpu; region.numel() elements in any shape; borrowed, not copied

  // The logical tensor itself.
  static Piece whole(std::string name, tensor::Tensor data);
};

// One file of this rank. Two ranks must not name the same file.
struct FilePlan {
  std::string file;  // plain name ending in ".safetensors"; see the helpers below
  std::vector<Piece> pieces;
};

// "layer_03-model_00-model_states.safetensors"
std::string model_states_file(int layer, int model_index);
// "layer_03-model_00-optim_states.safetensors"; with a data index, for state that the data group
// shares out, "layer_03-model_00-data_01-optim_states.safetensors".
std::string optim_states_file(int layer, int model_index, int data_index = -1);

struct SaveRequest {
  std::filesystem::path directory;  // seen by all ranks; made when missing
  std::string tag;                  // see validate_tag
  std::vector<FilePlan> files;      // this rank's; may be empty
  std::string engine_json;          // a JSON text; rank 0's is stored
  int keep_last = 0;                // remove older complete tags beyond this many; 0: keep all
  bool save_latest = true;          // let `latest` name it
};

struct SaveResult {
  std::int64_t bytes = 0;  // of all files of all ranks
  // The checkpoint is committed, but older ones could not be removed; rank 0 only, else empty.
  std::vector<std::string> warnings;
};

// Throws InvalidArgument unless the tag can name a directory beside `latest`: not empty, at most
// 200 bytes of UTF-8, no '/', '\\' or control characters, no '.' or space at its beginning, no
// space at its end, not "latest", not ending in ".tmp" or ".old".
void validate_tag(std::string_view tag);

// Collective. When it returns, the checkpoint is on the disk and complete. When it throws
// FileError, it throws the same on every rank, naming the ranks that failed and why; what was there
// before still loads, except that the new checkpoint may be found complete when only its last steps
// failed (the message says so). Waiting for the ranks that write most counts against the world's
// time-out.
SaveResult save(comm::World& world, const SaveRequest& request,
                FileSystem& file_system = posix_file_system());

struct TensorInfo {
  tensor::DType dtype = tensor::DType::kF32;
  tensor::Shape shape;
};

struct StoredPiece {
  std::string file;
  Region region;
};

// Whether a read may convert between floating dtypes; otherwise the stored dtype must be the
// destination's.
enum class Cast : bool { kNo, kFloating };

// How much of the data files is looked at: that they are there with their sizes, or every byte.
enum class Check : bool { kSizes, kContents };

// A checkpoint that was found complete. Reads are local to the rank, and belong to its thread.
class Reader {
 public:
  // Collective. Without a tag, loads what `latest` names. Every rank looks for itself, then all
  // agree that they see the same checkpoint; every file is checked by one rank (presence, size,
  // checksum, tensors). On any fault, every rank throws the same FileError; there is no such thing
  // as a checkpoint that is quietly not there.
  static Reader open(comm::World& world, const std::filesystem::path& directory,
                     const std::optional<std::string>& tag = std::nullopt,
                     FileSystem& file_system = posix_file_system());
  // Not collective, for a tool of one process: the data files are left to faults().
  static Reader inspect(const std::filesystem::path& directory,
                        const std::optional<std::string>& tag = std::nullopt,
                        FileSystem& file_system = posix_file_system());
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  ~Reader();

  const std::string& tag() const;
  // The directory that is read; ends in ".old" when a save over this tag was cut short and the
  // checkpoint that it was to replace is loaded.
  const std::filesystem::path& path() const;
  const std::string& engine_json() const;
  std::int64_t saved_at() const;  // nanoseconds since 1970
  // The files that belong to it, with their bytes.
  std::map<std::string, std::uint64_t> files() const;
  // Where the elements of a tensor lie.
  std::vector<StoredPiece> pieces(std::string_view name) const;
  // Checks the data files: what is wrong, one text for each file that is not as it was saved.
  std::vector<std::string> faults(Check check = Check::kContents) const;
  // Every logical tensor, by name.
  const std::map<std::string, TensorInfo, std::less<>>& tensors() const;
  bool contains(std::string_view name) const;
  // Throws FileError when there is no such tensor.
  const TensorInfo& info(std::string_view name) const;

  // Fills the destination (cpu), whatever layout the tensor is stored in. Whole: shapes must be
  // equal. Region: destination.numel() must be region.numel(); its shape is free.
  void read(std::string_view name, const tensor::Tensor& destination, Cast cast = Cast::kNo) const;
  void read(std::string_view name, const Region& region, const tensor::Tensor& destination,
            Cast cast = Cast::kNo) const;

 private:
  struct State;
  explicit Reader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace penstock::checkpoint
