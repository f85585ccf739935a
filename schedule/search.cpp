#include "schedule/search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iomanip>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "schedule/list_scheduler.h"
#include "schedule/lowering.h"
#include "schedule/order_search.h"
#include "schedule/registry.h"
#include "schedule/simulate.h"

namespace penstock::schedule {
namespace {

// Makespans that differ by less than this share are the same.
constexpr double kRounding = 1e-9;

[[noreturn]] void fail(const std::string& problem) {
  throw ScheduleError("[search] " + problem);
}

void require_entries(const char* what, std::size_t count, int ranks) {
  if (count == 0 || count == static_cast<std::size_t>(ranks)) return;
  fail("the memory limit has " + std::to_string(count) + " entries in " + what +
       "; expected none, or one for each of the " + std::to_string(ranks) + " ranks");
}

void check(const SearchRequest& request) {
  if (request.maps.empty()) fail("there is no stage map; expected one to choose from at least");
  const StageMap& first = request.maps.front();
  for (const StageMap& map : request.maps) {
    if (map.num_ranks() == first.num_ranks() && map.num_stages() == first.num_stages()) continue;
    fail("the stage maps are " + to_text(first) + " and " + to_text(map) +
         "; expected as many ranks and as many stages in all of them");
  }
  if (request.micro_batches < 1) {
    fail("gradient_accumulation_steps is " + std::to_string(request.micro_batches) +
         "; expected 1 or more");
  }
  if (!request.built_in && !request.improve) {
    fail("it may neither take built-in schedules nor look for others; expected one of both");
  }
  check_costs(request.costs, first.num_stages());
  require_entries("activations", request.limit.activations.size(), first.num_ranks());
  require_entries("bytes", request.limit.bytes.size(), first.num_ranks());
}

// What a rank needs next to what it may have.
struct Need {
  std::string name;
  PipeRank rank;
  int activations = 0;
  double bytes = 0.0;
  double ratio = 0.0;  // of the limit; above 1 it does not fit
};

// The rank of which most is asked.
Need worst_need(const std::string& name, const MemoryLimit& limit,
                const std::vector<int>& activations, const std::vector<double>& bytes) {
  Need worst{name, PipeRank{0}, 0, 0.0, -1.0};
  const auto share = [](double need, double have) {
    return have > 0.0 ? need / have : (need > 0.0 ? std::numeric_limits<double>::infinity() : 0.0);
  };
  for (std::size_t rank = 0; rank < activations.size(); ++rank) {
    double ratio = 0.0;
    if (!limit.activations.empty()) ratio = share(activations[rank], limit.activations[rank]);
    if (!limit.bytes.empty()) ratio = std::max(ratio, share(bytes[rank], limit.bytes[rank]));
    if (ratio <= worst.ratio) continue;
    worst = {name, PipeRank{static_cast<std::int32_t>(rank)}, activations[rank], bytes[rank],
             ratio};
  }
  return worst;
}

std::string number(double value) {
  std::ostringstream text;
  text << std::setprecision(10) << value;
  return text.str();
}

[[noreturn]] void refuse_limit(const Need& need, const MemoryLimit& limit) {
  const auto rank = static_cast<std::size_t>(need.rank.value);
  std::string needs, has;
  const auto add = [&](const std::string& needed, const std::string& given, const char* unit) {
    needs += (needs.empty() ? "" : " and ") + needed + unit;
    has += (has.empty() ? "" : " and ") + given + unit;
  };
  if (!limit.activations.empty()) {
    add(number(need.activations), number(limit.activations[rank]), " activation(s)");
  }
  if (!limit.bytes.empty()) add(number(need.bytes), number(limit.bytes[rank]), " bytes");
  fail("no schedule fits the memory limit: " + need.name + " comes nearest and needs " + needs +
       " on rank " + std::to_string(need.rank.value) + "; the limit there is " + has +
       "; raise it, or make the stages of that rank smaller");
}

// Whether `a` is to be preferred.
bool better(const SearchCandidate& a, const SearchCandidate& b) {
  if (std::abs(a.makespan - b.makespan) > kRounding * b.makespan) return a.makespan < b.makespan;
  return std::ranges::max(a.peak_activation_bytes) <
         std::ranges::max(b.peak_activation_bytes) * (1.0 - kRounding);
}

class Search {
 public:
  explicit Search(const SearchRequest& request) : request_(request) {}

  SearchResult run() {
    if (request_.built_in) add_built_in();
    if (request_.improve) improve();
    if (!winner_) refuse();
    return {std::move(*table_), *winner_, std::move(candidates_)};
  }

 private:
  // What is known of one map, with or without split backwards.
  struct Work {
    std::unique_ptr<ListScheduler> scheduler;
    std::vector<TimedOrder> known;  // once improved: the best

    double makespan() const { return known.front().makespan; }
  };

  void add_built_in() {
    for (const StageMap& map : request_.maps) {
      const ScheduleArgs args{.ranks = map.num_ranks(),
                              .micro_batches = request_.micro_batches,
                              .chunks = std::max(1, map.num_stages() / map.num_ranks()),
                              .stage_map = map};
      for (const ScheduleInfo& info : registered_schedules()) {
        if (!info.trains || info.rows == nullptr) continue;
        std::optional<RowSource> rows;
        try {
          rows = info.rows(args);
        } catch (const ScheduleError&) {
          continue;  // not made for this map or this number of micro batches
        }
        Table table = make_table(*rows);
        if (add(info.name, table)) fitting_.push_back(std::move(table));
      }
    }
  }

  // Whether it fits.
  bool add(std::string_view name, const Table& table) {
    const Timeline timeline = simulate(lower_all(name, source_of(table)), request_.costs);
    SearchCandidate candidate{
        std::string(name), table.map, timeline.makespan, timeline.bubble_ratio(), {}, {}, true};
    for (const RankTimeline& rank : timeline.ranks) {
      const PipeRank id{static_cast<std::int32_t>(candidate.peak_activations.size())};
      candidate.fits = candidate.fits &&
                       request_.limit.allows(id, rank.peak_activations, rank.peak_activation_bytes);
      candidate.peak_activations.push_back(rank.peak_activations);
      candidate.peak_activation_bytes.push_back(rank.peak_activation_bytes);
    }
    const bool fits = candidate.fits;
    if (fits && (!winner_ || better(candidate, candidates_[*winner_]))) {
      winner_ = candidates_.size();
      table_ = table;
    }
    candidates_.push_back(std::move(candidate));
    return fits;
  }

  // Three eighths of the effort look at all maps, with and without split backwards, as much goes to
  // what came out best, and the rest makes that do with less memory.
  void improve() {
    std::vector<Work> works;
    for (const StageMap& map : request_.maps) {
      if (!fits_one_micro_batch(map)) continue;
      for (const bool split : {false, true}) works.push_back(work(map, split, request_.limit));
    }
    if (works.empty()) return;
    const std::int64_t part = request_.effort / 8 * 3;
    const auto share = part / static_cast<std::int64_t>(works.size());
    for (Work& each : works) improve(each, {.passes = share, .least_orders = 4});
    Work& best = *std::ranges::min_element(works, {}, &Work::makespan);
    improve(best, {.passes = part, .least_orders = 0, .seed = 5});
    spare_memory(best, request_.effort / 4);
    add("search", best.scheduler->table_of(best.known.front()));
  }

  static void improve(Work& work, const SearchEffort& effort) {
    const Judge judge{work.scheduler.get()};
    TimedOrder found = best_order({&judge, 1}, std::move(work.known), effort);
    work.known.clear();
    work.known.push_back(std::move(found));
  }

  // Bisects for the least activations per rank with which the makespan is still reached.
  void spare_memory(Work& best, std::int64_t passes) const {
    constexpr int kSteps = 6;
    const auto peak = [](const Work& work) {
      return std::ranges::max(work.scheduler->peak_activations(work.known.front()));
    };
    const StageMap map = best.scheduler->problem().map;
    const bool split = best.scheduler->problem().split_backward;
    const double makespan = best.makespan() * (1.0 + kRounding);
    int too_few = 0;
    for (int rank = 0; rank < map.num_ranks(); ++rank) {
      too_few = std::max(too_few, map.num_chunks(PipeRank{rank}) - 1);
    }
    int enough = peak(best);
    for (int step = 0; step < kSteps && enough - too_few > 1; ++step) {
      const int most = too_few + (enough - too_few) / 2;
      MemoryLimit limit = request_.limit;
      limit.activations.resize(static_cast<std::size_t>(map.num_ranks()), most);
      for (int& activations : limit.activations) activations = std::min(activations, most);
      Work tighter = work(map, split, std::move(limit));
      improve(tighter, {.passes = passes / kSteps, .least_orders = 2, .enough = makespan});
      if (tighter.makespan() > makespan) {
        too_few = most;
      } else {
        best = std::move(tighter);
        enough = peak(best);
      }
    }
  }

  // With what is known from the built-in schedules within the limit.
  Work work(const StageMap& map, bool split, MemoryLimit limit) const {
    Work result{std::make_unique<ListScheduler>(ListProblem{
                    map, request_.micro_batches, request_.costs, split, std::move(limit)}),
                {}};
    const MemoryLimit& kept = result.scheduler->problem().limit;
    for (const Table& table : fitting_) {
      if (table.map != map || (!split && has_split_backward(table))) continue;
      TimedOrder order = result.scheduler->order_of(table);
      const std::vector<int> peaks = result.scheduler->peak_activations(order);
      bool fits = kept.activations.empty();
      if (!fits) fits = std::ranges::equal(peaks, kept.activations, std::less_equal<>());
      if (fits) result.known.push_back(std::move(order));
    }
    return result;
  }

  static bool has_split_backward(const Table& table) {
    return std::ranges::any_of(table.rows, [](const Row& row) {
      return std::ranges::any_of(row, [](const Cell& cell) {
        return !cell.idle() && cell.actions().front().kind == ActionKind::kBackwardWeight;
      });
    });
  }

  Need least_need(const StageMap& map) const {
    std::vector<int> activations;
    std::vector<double> bytes;
    for (int rank = 0; rank < map.num_ranks(); ++rank) {
      activations.push_back(map.num_chunks(PipeRank{rank}));
      bytes.push_back(least_bytes(map, request_.costs, PipeRank{rank}));
    }
    return worst_need("one micro batch at a time", request_.limit, activations, bytes);
  }

  bool fits_one_micro_batch(const StageMap& map) const {
    return least_need(map).ratio <= 1.0 + kRounding;
  }

  [[noreturn]] void refuse() const {
    std::vector<Need> needs;
    for (const SearchCandidate& candidate : candidates_) {
      needs.push_back(worst_need(candidate.name, request_.limit, candidate.peak_activations,
                                 candidate.peak_activation_bytes));
    }
    if (request_.improve) {
      for (const StageMap& map : request_.maps) needs.push_back(least_need(map));
    }
    if (needs.empty())
      fail("no built-in schedule can be made on " + to_text(request_.maps.front()));
    refuse_limit(*std::ranges::min_element(needs, {}, &Need::ratio), request_.limit);
  }

  const SearchRequest& request_;
  std::vector<SearchCandidate> candidates_;
  std::vector<Table> fitting_;  // built in
  std::optional<std::size_t> winner_;
  std::optional<Table> table_;  // the winner's
};

}  // namespace

std::vector<StageMap> usual_maps(int ranks, int chunks) {
  std::vector<StageMap> maps{StageMap::loop(ranks, chunks)};
  StageMap v = StageMap::v(ranks, chunks);
  if (v != maps.front()) maps.push_back(std::move(v));
  return maps;
}

SearchResult search(const SearchRequest& request) {
  check(request);
  return Search(request).run();
}

}  // namespace penstock::schedule
