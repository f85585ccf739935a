// PrefetchSource: reads a source ahead of its user, in the background.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "model/data_source.h"

namespace penstock::model {

// Gives what the source would give, at every call: micro batches, positions, the end, and errors,
// which come out of the call that would have met them. A thread of its own fetches what is likely
// to be asked for next: as many rows as last time, as far from the last ones as those were from the
// ones before (which is how the ranks of a grid read); a wrong guess costs one fetch. So the source
// is used by that thread and by the caller's, never by both at once; it may read what is then not
// asked for; and what it gives must follow from its position and epoch alone.
//
// The calls belong to one thread, as those of any source.
class PrefetchSource final : public DataSource {
 public:
  // Holds up to `depth` micro batches ahead. Throws InvalidArgument for depth < 1 or no source.
  explicit PrefetchSource(std::unique_ptr<DataSource> source, int depth = 2);
  // Waits for a fetch that has begun, and ends the thread.
  ~PrefetchSource() override;

  std::optional<MicroBatch> next(std::int64_t rows) override;
  std::int64_t position() const override { return place_.position; }
  void seek(std::int64_t position) override;
  std::optional<std::int64_t> remaining() const override { return place_.remaining; }
  std::optional<std::int64_t> left_in_pass() const override { return place_.left_in_pass; }
  void begin_epoch(std::int64_t epoch) override;

  // Holds up to so many micro batches ahead from now on; more that are there stay until they are
  // asked for. Throws InvalidArgument for depth < 1.
  void set_depth(int depth);

 private:
  struct Place {
    std::int64_t position = 0;
    std::optional<std::int64_t> remaining;
    std::optional<std::int64_t> left_in_pass;
  };
  struct Request {
    std::int64_t position, rows;
    bool operator==(const Request&) const = default;
  };
  struct Fetched {
    Request request;
    Place before, after;
    std::optional<MicroBatch> batch;
    std::exception_ptr error;

    // The order goes on after it.
    bool whole() const { return !error && batch && batch->rows() == request.rows; }
  };
  using Lock = std::unique_lock<std::mutex>;

  void run();
  std::optional<Fetched> guess(const Request& request);
  Fetched read(std::int64_t rows);
  Place source_place() const {
    return {source_->position(), source_->remaining(), source_->left_in_pass()};
  }
  const Request* upcoming() const;
  void await_upcoming(Lock& lock);
  void stop_guessing(Lock& lock);
  Fetched read_now(Lock& lock, std::int64_t rows);
  Request after(const Fetched& last) const;

  // Used with the mutex held, or while busy_ is false and guess_ empty: then by the caller's thread
  // alone.
  std::unique_ptr<DataSource> source_;

  // The caller's thread alone.
  Place place_;                           // what the caller sees
  std::optional<std::int64_t> last_end_;  // of the last micro batch given

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t depth_;             // of fetched_, at most
  std::deque<Fetched> fetched_;   // in the order in which they are expected
  std::optional<Request> guess_;  // what the thread fetches now or next; none: it rests
  std::int64_t gap_ = 0;          // from the end of one micro batch to the begin of the next
  bool busy_ = false;             // the thread is using the source
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace penstock::model
